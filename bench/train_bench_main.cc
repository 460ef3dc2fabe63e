// The training bench alone, as JSON: train_bench [SCALE [cpu|cuda]].
#include <cstdio>
#include <cstdlib>

#include "bench/train_bench.h"

int main(int argc, char** argv) {
  const auto cases = levada::bench::run_train_bench(argc > 1 ? std::atof(argv[1]) : 1.0, argc > 2 ? argv[2] : "cpu");
  if (!cases.ok()) {
    std::fprintf(stderr, "%s\n", cases.status().to_string().c_str());
    return 1;
  }
  std::printf("%s\n", levada::bench::to_json("train", "", *cases).c_str());
  return 0;
}
