# levada_room(NAME kv DEPS core [PRIVATE_DEPS …] [LIBS …] [PUBLIC_LIBS …] SRCS … [TESTS …] [TEST_LIBS …]
#             [OWN_FLAGS] [ALONE …])
#
# One static library per folder of src/. The library's public include root (build/roots/NAME) holds only itself, so a
# translation unit sees exactly the rooms that DEPS and PRIVATE_DEPS reach: the table in ARCHITECTURE.md is enforced by the
# compiler. Third parties (LIBS) are private to the room. TESTS become one executable NAME_test, registered with ctest.
#
# OWN_FLAGS says that the room compiles with flags or a precompiled header of its own, not with the common one.
#
# Instrumented builds are made whole, and most of their time went into the same headers and templates again and again: they
# put up to eight sources into one translation unit. ALONE names those that stay by themselves: they have flags of their own,
# or another source of the room has something else of the same name in its unnamed namespace.

# levada_together(OUT ROOM FILE SOURCES ALONE): OUT becomes what to compile in an instrumented build in place of SOURCES. CMake's
# own unity builds name their sources by absolute paths, with which no other clone finds them in ccache.
function(levada_together out room file sources alone)
  set(result)
  set(together)
  foreach(source ${sources})
    if(source IN_LIST alone OR IS_ABSOLUTE "${source}")
      list(APPEND result "${source}")
    else()
      list(APPEND together "#include \"${room}/${source}\"\n")
    endif()
  endforeach()
  set(number 0)
  while(together)
    list(SUBLIST together 0 8 batch)
    list(REMOVE_ITEM together ${batch})
    list(JOIN batch "" text)
    set(unit "${CMAKE_CURRENT_BINARY_DIR}/${file}_${number}.cc")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "${text}" @ONLY)  # writes only what changed
    list(APPEND result "${unit}")
    math(EXPR number "${number} + 1")
  endwhile()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

function(levada_room)
  cmake_parse_arguments(ROOM "OWN_FLAGS" "NAME" "DEPS;PRIVATE_DEPS;LIBS;PUBLIC_LIBS;SRCS;TESTS;TEST_LIBS;ALONE" ${ARGN})
  if(ROOM_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "levada_room(${ROOM_NAME}): unknown arguments ${ROOM_UNPARSED_ARGUMENTS}")
  endif()
  foreach(dep ${ROOM_DEPS} ${ROOM_PRIVATE_DEPS})
    if(NOT TARGET levada_${dep})
      message(FATAL_ERROR "room ${ROOM_NAME} depends on ${dep}, which is not declared before it")
    endif()
  endforeach()

  if(LEVADA_SANITIZE)
    levada_together(ROOM_SRCS ${ROOM_NAME} levada_${ROOM_NAME} "${ROOM_SRCS}" "${ROOM_ALONE}")
    levada_together(ROOM_TESTS ${ROOM_NAME} ${ROOM_NAME}_test "${ROOM_TESTS}" "${ROOM_ALONE}")
  endif()

  set(root "${CMAKE_BINARY_DIR}/roots/${ROOM_NAME}")
  file(MAKE_DIRECTORY "${root}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${root}/${ROOM_NAME}" SYMBOLIC)

  list(TRANSFORM ROOM_DEPS PREPEND levada_ OUTPUT_VARIABLE public_rooms)
  list(TRANSFORM ROOM_PRIVATE_DEPS PREPEND levada_ OUTPUT_VARIABLE private_rooms)
  if(ROOM_SRCS)
    add_library(levada_${ROOM_NAME} STATIC ${ROOM_SRCS})
    target_include_directories(levada_${ROOM_NAME} PUBLIC "${root}")
    if(NOT ROOM_OWN_FLAGS)
      target_precompile_headers(levada_${ROOM_NAME} REUSE_FROM levada_std_pch)
    endif()
    target_link_libraries(levada_${ROOM_NAME}
      PUBLIC ${public_rooms} ${ROOM_PUBLIC_LIBS} PRIVATE ${private_rooms} ${ROOM_LIBS})
  else()  # headers only
    add_library(levada_${ROOM_NAME} INTERFACE)
    target_include_directories(levada_${ROOM_NAME} INTERFACE "${root}")
    target_link_libraries(levada_${ROOM_NAME} INTERFACE ${public_rooms} ${ROOM_PUBLIC_LIBS})
  endif()

  if(ROOM_TESTS)
    add_executable(${ROOM_NAME}_test ${ROOM_TESTS})
    target_link_libraries(${ROOM_NAME}_test
      PRIVATE levada_${ROOM_NAME} ${private_rooms} ${ROOM_LIBS} ${ROOM_TEST_LIBS} levada_test_main)
    levada_compile_as_test(${ROOM_NAME}_test)
    add_test(NAME ${ROOM_NAME} COMMAND ${ROOM_NAME}_test)
    # A fixed seed: what RapidCheck draws is the same in every run of ctest. Run by hand, a test draws anew.
    set_tests_properties(${ROOM_NAME} PROPERTIES LABELS unit TIMEOUT 600 ENVIRONMENT RC_PARAMS=seed=20261130)
  endif()
endfunction()
