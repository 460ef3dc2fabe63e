// What: where the goldens stand.
// Owner: the test.
// Thread: any.
// Invariant: on a machine without the source folder (a GPU machine) they are found from the repository's root.
#pragma once

#include <filesystem>

namespace levada::test {

inline std::filesystem::path vectors() {
  const std::filesystem::path built = std::filesystem::path(LEVADA_SOURCE_DIR) / "tests/vectors";
  return std::filesystem::exists(built) ? built : "tests/vectors";
}

}  // namespace levada::test
