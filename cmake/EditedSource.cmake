# Sources of a library that is not ours, copied into the build folder with edits. For an engine E the caller sets E_from and
# E_to, the folders they are read from and written to. Each edit must find its place, or configuring fails.

# edit_source(ENGINE FILE ANCHOR REPLACEMENT): replaces every occurrence of ANCHOR in the text of FILE.
function(edit_source engine file anchor replacement)
  string(MAKE_C_IDENTIFIER "${engine}_text_${file}" variable)
  if(NOT DEFINED ${variable})
    file(READ "${${engine}_from}/${file}" ${variable})
  endif()
  string(FIND "${${variable}}" "${anchor}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "${CMAKE_CURRENT_LIST_FILE}: ${file} no longer contains:\n${anchor}")
  endif()
  string(REPLACE "${anchor}" "${replacement}" ${variable} "${${variable}}")
  set(${variable} "${${variable}}" PARENT_SCOPE)
endfunction()

# write_source(ENGINE FILE): FILE with its edits, or as it is; touched only where it changed.
function(write_source engine file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${${engine}_from}/${file}")
  string(MAKE_C_IDENTIFIER "${engine}_text_${file}" variable)
  if(DEFINED ${variable})
    file(CONFIGURE OUTPUT "${${engine}_to}/${file}" CONTENT "${${variable}}" @ONLY)
  else()
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY "${${engine}_to}/${folder}")
    file(COPY_FILE "${${engine}_from}/${file}" "${${engine}_to}/${file}" ONLY_IF_DIFFERENT)
  endif()
endfunction()
