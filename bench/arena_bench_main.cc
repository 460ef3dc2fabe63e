// run_arena_bench() alone, on a GPU: `levada bench nvlink-arena` without the engine's libraries.
#include <cstdio>

#include "bench/arena_bench.h"

int main() {
  const auto cases = levada::bench::run_arena_bench({});
  if (!cases.ok()) {
    std::fprintf(stderr, "%s\n", cases.status().to_string().c_str());
    return 1;
  }
  std::puts(levada::bench::to_json("nvlink-arena", "", *cases).c_str());
  return 0;
}
