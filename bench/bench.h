// What: Case, one measured line of a bench; sample(), how it is measured; to_json(), how it is printed (house.md §8).
// Owner: value types.
// Thread: the caller's; a bench runs alone in its process.
// Invariant: every bench reports through to_json(), so that all can be compared by one script.
// Format: {"bench", "commit", "machine", "cases": [{"name", "median", "p99", "unit", "n"}]}
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace levada::bench {

struct Case {
  std::string name;
  double median = 0;
  double p99 = 0;  // the worse end: of durations the long ones, of rates the low ones
  std::string unit;
  std::int64_t n = 0;  // samples behind median and p99
};

struct Sampling {
  std::int32_t samples = 200;
  std::int32_t warmup = 20;  // runs before the first sample, not counted
};

// Case of durations, in microseconds. `samples` must not be empty.
Case summarize_us(std::string name, std::vector<double> samples);
// Case of rates ("tok/s", "GB/s"): higher is better. `samples` must not be empty.
Case summarize_rates(std::string name, std::vector<double> samples, std::string unit);

// Runs prepare() untimed and body() timed, over and over, one sample a turn.
template <class Prepare, class Body>
Case sample_us(std::string name, const Sampling& sampling, Prepare prepare, Body body) {
  std::vector<double> samples;
  samples.reserve(static_cast<std::size_t>(sampling.samples));
  for (std::int32_t turn = -sampling.warmup; turn < sampling.samples; ++turn) {
    prepare();
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
    if (turn >= 0) samples.push_back(spent.count());
  }
  return summarize_us(std::move(name), std::move(samples));
}

// Keeps the compiler from dropping the computation of a value nobody reads.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// "Intel(R) Xeon(R) Processor, 2 CPUs", from /proc/cpuinfo.
std::string machine();

// One JSON object on one line.
std::string to_json(std::string_view bench, std::string_view commit, std::span<const Case> cases);

}  // namespace levada::bench
