# Two precompiled headers: the standard library for every room (levada_std_pch), GoogleTest with it for every test executable
# (levada_test_pch). They halve the time of an ordinary source. A room's own header never enters: a room sees only the
# rooms it names. What reuses one must be compiled with the same flags, else g++ leaves it aside.
add_library(levada_std_pch OBJECT cmake/pch.cc)
target_precompile_headers(levada_std_pch PRIVATE
  <algorithm> <atomic> <chrono> <cstdint> <cstring> <filesystem> <functional> <map> <memory> <mutex> <optional> <span>
  <string> <string_view> <thread> <unordered_map> <variant> <vector>)

add_library(levada_test_pch OBJECT cmake/pch.cc)
target_compile_options(levada_test_pch PRIVATE ${LEVADA_TEST_OPTIMIZE})
target_compile_definitions(levada_test_pch PRIVATE GTEST_HAS_PTHREAD=1)
target_precompile_headers(levada_test_pch PRIVATE
  <algorithm> <filesystem> <fstream> <map> <memory> <random> <string> <vector> <gmock/gmock.h> <gtest/gtest.h>)

# Test code is compiled often and runs briefly: less optimisation (LEVADA_TEST_OPTIMIZE) is less waiting.
function(levada_compile_as_test target)
  target_compile_options(${target} PRIVATE ${LEVADA_TEST_OPTIMIZE})
  target_precompile_headers(${target} REUSE_FROM levada_test_pch)
endfunction()
