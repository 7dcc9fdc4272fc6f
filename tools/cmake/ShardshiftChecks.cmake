# Targets that look at the sources and build nothing: format-check and tidy.
add_custom_target(format-check
  COMMAND ${CMAKE_SOURCE_DIR}/tools/format_check.sh
  USES_TERMINAL)
add_custom_target(tidy
  COMMAND ${CMAKE_SOURCE_DIR}/tools/tidy.sh
  USES_TERMINAL)
