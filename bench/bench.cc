#include "bench/bench.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"

namespace levada::bench {

namespace {

// `samples` sorted from best to worst.
Case summarize_sorted(std::string name, const std::vector<double>& samples, std::string unit) {
  LEVADA_CHECK(!samples.empty(), "a case needs samples");
  const auto rank = [&](double share) {
    return samples[static_cast<std::size_t>(std::lround(share * static_cast<double>(samples.size() - 1)))];
  };
  return {std::move(name), rank(0.5), rank(0.99), std::move(unit), static_cast<std::int64_t>(samples.size())};
}

// Four significant digits: more would be noise.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10.0, std::floor(std::log10(std::fabs(value))) - 3);
  return std::round(value / unit) * unit;
}

}  // namespace

Case summarize_us(std::string name, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return summarize_sorted(std::move(name), samples, "us");
}

Case summarize_rates(std::string name, std::vector<double> samples, std::string unit) {
  std::sort(samples.begin(), samples.end(), std::greater<>());
  return summarize_sorted(std::move(name), samples, std::move(unit));
}

std::string machine() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string model = "unknown CPU";
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name")) continue;
    if (const auto colon = line.find(": "); colon != std::string::npos) model = line.substr(colon + 2);
    break;
  }
  return model + ", " + std::to_string(std::thread::hardware_concurrency()) + " CPUs";
}

std::string to_json(std::string_view bench, std::string_view commit, std::span<const Case> cases) {
  nlohmann::ordered_json document{{"bench", bench}, {"commit", commit}, {"machine", machine()}};
  auto& list = document["cases"] = nlohmann::ordered_json::array();
  for (const Case& item : cases) {
    list.push_back({{"name", item.name},
                    {"median", rounded(item.median)},
                    {"p99", rounded(item.p99)},
                    {"unit", item.unit},
                    {"n", item.n}});
  }
  return document.dump();
}

}  // namespace levada::bench
