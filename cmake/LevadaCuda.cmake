# Everything that runs on a GPU is one module, liblevada_cuda.so, which the binary loads for --device cuda. A room adds its
# part of it:
#
# levada_cuda_sources(ROOM kernels [USES core …] SRCS cuda/norm.cu …)   objects of the module; nothing without nvcc
# levada_cuda_test(NAME kernels_cuda_test ROOM kernels [USES …] SRCS … [LIBS …])   a test binary over the room's objects. Not
#     a ctest: it fails where there is no GPU. Tests run it on the GPU machine (docs/measurements.md).
#
# levada_cuda_program(NAME kernels_cuda_bench ROOM kernels [USES …] SRCS … [LIBS …])   a program over them, built when asked for.
#
# Sources see the room itself and the rooms in USES, by their headers alone: what a static library of those rooms defines is
# linked into the module only from LEVADA_CUDA_LIBRARIES below, none of which knows libtorch.
#
# LEVADA_CUDA_ARCHITECTURES: what to compile for, "90a" (Hopper) unless told; "80;90a;100a" is the nightly target's list.

set(LEVADA_CUDA_ARCHITECTURES 90a CACHE STRING "Compute capabilities of the CUDA kernels, as nvcc names them")
set(LEVADA_CUDA_LIBRARIES levada_device levada_kernels levada_core)
find_program(LEVADA_NVCC nvcc PATHS /usr/local/cuda/bin)

# No instrumented suite has a GPU: there the module would only cost time.
if(LEVADA_NVCC AND NOT LEVADA_SANITIZE)
  # The kernels are compiled by the rules below instead of CMake's own CUDA language: 3.25 doesn't know C++20 for nvcc 13.
  get_filename_component(cuda_root "${LEVADA_NVCC}" REALPATH)
  get_filename_component(cuda_root "${cuda_root}" DIRECTORY)
  get_filename_component(cuda_root "${cuda_root}" DIRECTORY)
  set(LEVADA_CUDA_ROOT "${cuda_root}")
  set(LEVADA_CUDA ON)
else()
  set(LEVADA_CUDA OFF)
  if(NOT LEVADA_SANITIZE)
    message(STATUS "liblevada_cuda.so is not built: there is no nvcc (CUDA toolkit 13) on this machine; --device cuda will say so")
  endif()
endif()

if(LEVADA_CUDA)
  set(fi "${LEVADA_DEPS_DIR}/flashinfer")
  # FlashInfer's own CCCL comes before the toolkit's, which lacks what its headers use.
  set(LEVADA_CUDA_INCLUDES
    -I${fi}/cccl/cub -I${fi}/cccl/libcudacxx/include -I${fi}/cccl/thrust
    -isystem ${fi}/include -isystem ${fi}/cutlass/include -isystem ${fi}/cutlass/tools/util/include)
  set(LEVADA_CUDA_FLAGS -std=c++20 -O3 -DNDEBUG -lineinfo --expt-relaxed-constexpr -static-global-template-stub=false
    -diag-suppress=177 -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wno-unused-parameter
    -DFLASHINFER_ENABLE_F16 -DFLASHINFER_ENABLE_BF16 -DFLASHINFER_ENABLE_FP8_E4M3 -DFLASHINFER_ENABLE_FP8_E5M2
    -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED)
  foreach(architecture ${LEVADA_CUDA_ARCHITECTURES})
    list(APPEND LEVADA_CUDA_FLAGS --generate-code=arch=compute_${architecture},code=[sm_${architecture}])
  endforeach()
endif()

# levada_cuda_objects(OUT ROOM USES SOURCES): OUT becomes the objects of SOURCES (.cu through nvcc, .cc through g++).
function(levada_cuda_objects out room uses sources)
  set(roots)
  foreach(used ${room} ${uses})
    list(APPEND roots "-I${CMAKE_BINARY_DIR}/roots/${used}")
  endforeach()
  list(APPEND roots "-I${CMAKE_BINARY_DIR}/roots/base" "-I${CMAKE_BINARY_DIR}/roots/device")
  list(REMOVE_DUPLICATES roots)
  set(objects)
  set(host_sources)
  foreach(source ${sources})
    if(source MATCHES "\\.cu$")
      string(REPLACE "/" "_" flat "${room}/${source}")
      set(object "${CMAKE_CURRENT_BINARY_DIR}/${flat}.o")
      add_custom_command(OUTPUT "${object}"
        COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${LEVADA_NVCC}" -c "${CMAKE_CURRENT_SOURCE_DIR}/${source}" -o "${object}"
          -MD -MF "${object}.d" ${LEVADA_CUDA_FLAGS} ${LEVADA_CUDA_INCLUDES} ${roots}
        DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}" "${LEVADA_NVCC}" DEPFILE "${object}.d"
        COMMENT "Building CUDA object ${room}/${source}" VERBATIM COMMAND_EXPAND_LISTS)
      list(APPEND objects "${object}")
    else()
      list(APPEND host_sources "${source}")
    endif()
  endforeach()
  if(host_sources)
    string(REPLACE ";" "_" key "${host_sources}")
    string(MD5 key "${key}")
    set(target levada_${room}_cuda_host_${key})
    add_library(${target} OBJECT ${host_sources})
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden)
    target_include_directories(${target} SYSTEM PRIVATE "${LEVADA_CUDA_ROOT}/include")
    string(REPLACE "-I" "" folders "${roots}")
    target_include_directories(${target} PRIVATE ${folders})
    list(APPEND objects $<TARGET_OBJECTS:${target}>)
  endif()
  set(${out} "${objects}" PARENT_SCOPE)
endfunction()

function(levada_cuda_sources)
  cmake_parse_arguments(PART "" "ROOM" "USES;SRCS" ${ARGN})
  if(NOT LEVADA_CUDA)
    return()
  endif()
  levada_cuda_objects(objects ${PART_ROOM} "${PART_USES}" "${PART_SRCS}")
  set_property(GLOBAL APPEND PROPERTY LEVADA_CUDA_OBJECTS ${objects})
  set_property(GLOBAL APPEND PROPERTY LEVADA_CUDA_OBJECTS_${PART_ROOM} ${objects})
  add_custom_target(levada_${PART_ROOM}_cuda DEPENDS ${objects})
  set_property(GLOBAL APPEND PROPERTY LEVADA_CUDA_PARTS levada_${PART_ROOM}_cuda)
endfunction()

# After the last room: the module itself, and the runtime libraries it needs.
function(levada_cuda_module)
  if(NOT LEVADA_CUDA)
    return()
  endif()
  get_property(objects GLOBAL PROPERTY LEVADA_CUDA_OBJECTS)
  get_property(parts GLOBAL PROPERTY LEVADA_CUDA_PARTS)
  add_library(levada_cuda MODULE ${objects})
  set_target_properties(levada_cuda PROPERTIES LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
  target_link_libraries(levada_cuda PRIVATE ${LEVADA_CUDA_LIBRARIES}
    "${LEVADA_CUDA_ROOT}/lib64/libcudart.so" "${LEVADA_CUDA_ROOT}/lib64/libcublasLt.so")
  target_link_options(levada_cuda PRIVATE "-Wl,-rpath,${LEVADA_CUDA_ROOT}/lib64" -Wl,--no-undefined
    -Wl,--build-id=sha1)  # the warm-up manifest's key
  add_dependencies(levada_cuda ${parts})
  if(TARGET model_cuda_test)  # loads it, and must be of the same build
    add_dependencies(model_cuda_test levada_cuda)
  endif()
endfunction()

function(levada_cuda_program)
  cmake_parse_arguments(PROGRAM "" "NAME;ROOM" "USES;SRCS;LIBS" ${ARGN})
  if(NOT LEVADA_CUDA)
    return()
  endif()
  get_property(objects GLOBAL PROPERTY LEVADA_CUDA_OBJECTS_${PROGRAM_ROOM})
  add_executable(${PROGRAM_NAME} EXCLUDE_FROM_ALL ${PROGRAM_SRCS} ${objects})
  add_dependencies(${PROGRAM_NAME} levada_${PROGRAM_ROOM}_cuda)
  target_include_directories(${PROGRAM_NAME} SYSTEM PRIVATE "${LEVADA_CUDA_ROOT}/include")
  list(TRANSFORM PROGRAM_USES PREPEND levada_ OUTPUT_VARIABLE rooms)
  target_link_libraries(${PROGRAM_NAME} PRIVATE levada_${PROGRAM_ROOM} ${rooms} ${LEVADA_CUDA_LIBRARIES} ${PROGRAM_LIBS}
    "${LEVADA_CUDA_ROOT}/lib64/libcudart.so" "${LEVADA_CUDA_ROOT}/lib64/libcublasLt.so")
  target_link_options(${PROGRAM_NAME} PRIVATE "-Wl,-rpath,${LEVADA_CUDA_ROOT}/lib64")
endfunction()

function(levada_cuda_test)
  cmake_parse_arguments(TEST "" "NAME;ROOM" "USES;SRCS;LIBS" ${ARGN})
  if(NOT LEVADA_CUDA)
    return()
  endif()
  levada_cuda_program(${ARGN})
  set_target_properties(${TEST_NAME} PROPERTIES EXCLUDE_FROM_ALL OFF)
  target_link_libraries(${TEST_NAME} PRIVATE levada_test_main)
  levada_compile_as_test(${TEST_NAME})
endfunction()
