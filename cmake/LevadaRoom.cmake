# levada_room(NAME kv DEPS core [PRIVATE_DEPS …] [LIBS …] [PUBLIC_LIBS …] SRCS … [TESTS …] [TEST_LIBS …])
#
# One static library per folder of src/. The library's public include root (build/roots/NAME) holds only itself, so a
# translation unit sees exactly the rooms that DEPS and PRIVATE_DEPS reach: the table in ARCHITECTURE.md is enforced by the
# compiler. Third parties (LIBS) are private to the room. TESTS become one executable NAME_test, registered with ctest.
function(levada_room)
  cmake_parse_arguments(ROOM "" "NAME" "DEPS;PRIVATE_DEPS;LIBS;PUBLIC_LIBS;SRCS;TESTS;TEST_LIBS" ${ARGN})
  if(ROOM_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "levada_room(${ROOM_NAME}): unknown arguments ${ROOM_UNPARSED_ARGUMENTS}")
  endif()
  foreach(dep ${ROOM_DEPS} ${ROOM_PRIVATE_DEPS})
    if(NOT TARGET levada_${dep})
      message(FATAL_ERROR "room ${ROOM_NAME} depends on ${dep}, which is not declared before it")
    endif()
  endforeach()

  set(root "${CMAKE_BINARY_DIR}/roots/${ROOM_NAME}")
  file(MAKE_DIRECTORY "${root}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${root}/${ROOM_NAME}" SYMBOLIC)

  list(TRANSFORM ROOM_DEPS PREPEND levada_ OUTPUT_VARIABLE public_rooms)
  list(TRANSFORM ROOM_PRIVATE_DEPS PREPEND levada_ OUTPUT_VARIABLE private_rooms)
  if(ROOM_SRCS)
    add_library(levada_${ROOM_NAME} STATIC ${ROOM_SRCS})
    target_include_directories(levada_${ROOM_NAME} PUBLIC "${root}")
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
    # Test code is compiled often and runs briefly: less optimisation (LEVADA_TEST_OPTIMIZE) is less waiting.
    target_compile_options(${ROOM_NAME}_test PRIVATE ${LEVADA_TEST_OPTIMIZE})
    target_precompile_headers(${ROOM_NAME}_test REUSE_FROM levada_test_pch)
    add_test(NAME ${ROOM_NAME} COMMAND ${ROOM_NAME}_test)
    # A fixed seed: what RapidCheck draws is the same in every run of ctest. Run by hand, a test draws anew.
    set_tests_properties(${ROOM_NAME} PROPERTIES LABELS unit TIMEOUT 600 ENVIRONMENT RC_PARAMS=seed=20261130)
  endif()
endfunction()
