// What: `levada bench serving`: a load on any OpenAI-compatible server over HTTP, and what its clients felt.
// Owner: none, functions.
// Thread: run_load() starts one thread per request that may be under way.
// Invariant: a request that fails is counted with its reason and never in a percentile; the same seed gives the same prompts
// and the same arrivals.
// Prompts are words, as tokens are the server's affair: lengths are what its usage says.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"

namespace levada::bench {

struct LoadOptions {
  std::string url = "http://127.0.0.1:30000";
  std::string model = "default";
  std::string endpoint = "chat";   // chat, completions
  std::string dataset = "random";  // random, shared-prefix
  std::int64_t requests = 64;
  double request_rate = 0;        // per second, arrivals as of a Poisson process; 0: all at once
  std::int64_t concurrency = 16;  // requests under way at most
  std::int64_t input_words = 64;  // of the prompt, or of its part behind the shared prefix
  std::int64_t output_tokens = 32;
  std::int64_t groups = 4;          // shared-prefix: how many prefixes
  std::int64_t prefix_words = 256;  // shared-prefix
  std::int64_t seed = 1;
  std::string api_key;
  std::string png;  // file for the percentiles' picture; empty: none
};

void describe(OptionTable& table, LoadOptions& options);

// One request's fate; times in ms since it was sent.
struct Exchange {
  std::string failure;  // empty: it went well
  double first_ms = 0, end_ms = 0;
  std::vector<double> gaps_ms;  // between events with text
  std::int64_t prompt_tokens = 0, output_tokens = 0;
};

struct LoadResult {
  double seconds = 0;
  std::vector<Exchange> exchanges;
};

// kInvalidArgument if the options can't be; failures of single requests are in the result.
Result<LoadResult> run_load(const LoadOptions& options);

// ttft, tpot, itl and e2e: sorted, in ms, of the requests that went well.
std::map<std::string, std::vector<double>> latencies(const LoadResult& result);
// The value that `percent` of the sorted samples don't exceed; 0 of none.
double percentile(const std::vector<double>& sorted, double percent);

std::string load_json(const LoadOptions& options, const LoadResult& result);
std::string load_table(const LoadResult& result);

// The prompts of a load, for tests.
std::vector<std::string> make_prompts(const LoadOptions& options);

}  // namespace levada::bench
