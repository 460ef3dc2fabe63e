# cmake -DSOURCE_DIR=… -DTEMPLATE=… -DOUTPUT=… -DLEVADA_VERSION=… -P WriteVersion.cmake
# Runs at each build; rewrites the header only when the commit changed.
execute_process(COMMAND git rev-parse --short HEAD WORKING_DIRECTORY "${SOURCE_DIR}"
  OUTPUT_VARIABLE LEVADA_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT LEVADA_COMMIT)
  set(LEVADA_COMMIT "unknown")
endif()
configure_file("${TEMPLATE}" "${OUTPUT}" @ONLY)
