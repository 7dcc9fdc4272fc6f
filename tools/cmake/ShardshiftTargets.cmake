# How targets are declared: ss_library, ss_binary and ss_test. All flags live
# in one INTERFACE target.

add_library(ss_flags INTERFACE)
target_include_directories(ss_flags INTERFACE ${CMAKE_SOURCE_DIR})
# Contraction off: whether the compiler fuses a multiply and an add would
# otherwise depend on inlining, and with it the bits of a training run.
target_compile_options(ss_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -ffp-contract=off)
if(SHARDSHIFT_WERROR)
  target_compile_options(ss_flags INTERFACE -Werror)
endif()
if(SHARDSHIFT_SANITIZE)
  target_compile_options(ss_flags INTERFACE
    -fsanitize=${SHARDSHIFT_SANITIZE} -fno-omit-frame-pointer -g
    -Wno-maybe-uninitialized)
  target_link_options(ss_flags INTERFACE -fsanitize=${SHARDSHIFT_SANITIZE})
endif()

# ss_library(ckpt_core SRCS a.cc DEPS absl::status) makes shardshift::ckpt_core.
function(ss_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  if(arg_SRCS)
    add_library(${name} STATIC ${arg_SRCS})
    target_link_libraries(${name} PUBLIC ss_flags ${arg_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ss_flags ${arg_DEPS})
  endif()
  add_library(shardshift::${name} ALIAS ${name})
endfunction()

# ss_binary(train SRCS train_main.cc DEPS ...) makes build/bin/train.
function(ss_binary name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name}_main ${arg_SRCS})
  set_target_properties(${name}_main PROPERTIES OUTPUT_NAME ${name})
  target_link_libraries(${name}_main PRIVATE ss_flags ${arg_DEPS})
endfunction()

# ss_test(ckpt_box_test SRCS box_test.cc DEPS ... LABELS unit quick)
# registers one CTest test. Label `quick` means: also run under the sanitizers
# by .ci/run.
function(ss_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE ss_flags ${arg_DEPS}
    GTest::gmock GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()
