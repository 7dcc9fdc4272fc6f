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
# There are hundreds of tests to link; this linker takes a tenth of the time.
find_program(SHARDSHIFT_MOLD mold)
if(SHARDSHIFT_MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
   AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.1)
  target_link_options(ss_flags INTERFACE -fuse-ld=mold)
endif()
if(SHARDSHIFT_SANITIZE)
  target_compile_options(ss_flags INTERFACE
    -fsanitize=${SHARDSHIFT_SANITIZE} -fno-omit-frame-pointer -g1
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  # These three check every access through a pointer, for a third of the time
  # to compile; the address sanitizer stops at null by itself.
  if(SHARDSHIFT_SANITIZE MATCHES "undefined")
    target_compile_options(ss_flags INTERFACE
      -fno-sanitize=alignment,null,vptr)
  endif()
  target_link_options(ss_flags INTERFACE -fsanitize=${SHARDSHIFT_SANITIZE})
  target_compile_definitions(ss_flags INTERFACE SHARDSHIFT_SANITIZED)
endif()

# Everything made by ss_binary, and every test labelled `quick` and `threads`.
add_custom_target(binaries)
add_custom_target(quick_tests)
add_custom_target(threads_tests)

# ss_headers(library_headers <string> ...) precompiles headers: parsing them is
# half of the time to compile. What a folder's CMakeLists.txt names in
# `ss_precompiled` is what its targets reuse, which needs the same compile flags.
# A file still includes what it uses: the tidy preset builds without this.
function(ss_headers name)
  file(CONFIGURE OUTPUT ${name}.cc CONTENT "")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE ss_flags)
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
function(ss_reuse_headers name)
  if(ss_precompiled)
    target_precompile_headers(${name} REUSE_FROM ${ss_precompiled})
  endif()
endfunction()

# ss_library(ckpt_core SRCS a.cc DEPS absl::status) makes shardshift::ckpt_core.
function(ss_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  if(arg_SRCS)
    add_library(${name} STATIC ${arg_SRCS})
    target_link_libraries(${name} PUBLIC ss_flags ${arg_DEPS})
    ss_reuse_headers(${name})
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
  ss_reuse_headers(${name}_main)
  add_dependencies(binaries ${name}_main)
endfunction()

# ss_test(ckpt_box_test SRCS box_test.cc DEPS ... LABELS unit quick)
# registers one CTest test. Label `quick` means: also run under the address and
# undefined-behaviour sanitizers by .ci/run; `threads`, beside it: under the
# thread sanitizer, too. Label `sweep` means: takes minutes, exists only with
# SHARDSHIFT_LONG_TESTS, which tools/test_all.sh sets.
function(ss_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if("sweep" IN_LIST arg_LABELS AND NOT SHARDSHIFT_LONG_TESTS)
    return()
  endif()
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE ss_flags ${arg_DEPS}
    GTest::gmock GTest::gtest GTest::gtest_main)
  ss_reuse_headers(${name})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  ss_describe_test(${name} "${arg_LABELS}" "${arg_TIMEOUT}" ${name})
endfunction()

# ss_mpi_test(trainer_mpi_communicator_test SRCS ... PROCESSES 2 5) registers a
# test with a main of its own for each number of processes, labelled `mpi`.
function(ss_mpi_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SRCS;DEPS;PROCESSES;LABELS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE ss_flags ${arg_DEPS}
    GTest::gmock GTest::gtest)
  ss_reuse_headers(${name})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  foreach(number ${arg_PROCESSES})
    add_test(NAME ${name}_on_${number} COMMAND ${MPIEXEC_EXECUTABLE}
      --allow-run-as-root --oversubscribe ${MPIEXEC_NUMPROC_FLAG} ${number}
      $<TARGET_FILE:${name}>)
    ss_describe_test(${name}_on_${number} "mpi;${arg_LABELS}"
      "${arg_TIMEOUT}" ${name})
  endforeach()
endfunction()

# ss_python_test(arch_test SCRIPT arch_test.py ARGS ... USES ckpt_main LABELS
# arch quick) registers a script of Debian's python3 as one CTest test; USES
# names the targets that it runs.
function(ss_python_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;SCRIPT" "ARGS;USES;LABELS" ${ARGN})
  if("sweep" IN_LIST arg_LABELS AND NOT SHARDSHIFT_LONG_TESTS)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${SHARDSHIFT_PYTHON} -B
    ${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT} ${arg_ARGS})
  ss_describe_test(${name} "${arg_LABELS}" "${arg_TIMEOUT}" ${arg_USES})
endfunction()

# Gives a test its labels and its timeout in seconds, longer under sanitizers;
# further arguments are the targets to build before it runs.
function(ss_describe_test name labels timeout)
  if(NOT timeout)
    set(timeout 300)
  endif()
  if(SHARDSHIFT_SANITIZE)
    math(EXPR timeout "10 * ${timeout}")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout})
  # The longest, which are to start first, lest one is left for the end.
  if("e2e" IN_LIST labels)
    set_tests_properties(${name} PROPERTIES COST 10)
  endif()
  foreach(label quick threads)
    if(label IN_LIST labels AND ARGN)
      add_dependencies(${label}_tests ${ARGN})
    endif()
  endforeach()
endfunction()
