// What: the admission bench behind `levada bench admission` (S14): a list of requests goes through the scheduler's own
// WaitingQueue and PrefillAdmission, over an allocator that only counts; what each round takes on, where it stops and why.
// Owner: none, functions.
// Thread: the caller's.
// Invariant: no policy of its own: every verdict is PrefillAdmission's. A request takes the pages of its input and of the output
// that admission expects at once, and gives them back max_new_tokens rounds later; rounds that could admit nothing are passed over.
// Formats: a request is {"cached", "extend", "max_new"}, tokens of each; there is no tier below the device, so "l2_hit" must be 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/bench.h"

namespace levada::bench {

struct AdmissionInput {
  std::int32_t cached_tokens = 0, extend_tokens = 0, max_new_tokens = 0;
};

struct AdmissionSetup {
  std::int32_t page_size_tokens = 16;
  std::int32_t pages = 16384;
  std::int64_t bytes_per_token = 1 << 16;
  std::int64_t max_running_requests = 256;
  std::int64_t max_prefill_tokens = 16384;
  std::int64_t chunk_tokens = 512;  // 0: whole prompts
};

struct AdmissionRound {
  struct Admitted {
    std::size_t request;  // index in the list
    std::int32_t extend_tokens;
    bool whole;  // its prompt is done with this part
  };
  std::vector<Admitted> admitted;
  std::size_t waiting = 0;
  std::string stop;  // "no_token", "other", or "empty": nobody waits
  std::int64_t extend_tokens = 0, cached_tokens = 0, pages = 0, bytes = 0;
  double duration_us = 0;  // of the decisions alone
};

// All rounds until every request's prompt is admitted. kPayloadTooLarge, naming the request, if one could never be.
Result<std::vector<AdmissionRound>> run_admission(const std::vector<AdmissionInput>& inputs,
                                                  const AdmissionSetup& setup);

// One object per line. kInvalidArgument names line and field.
Result<std::vector<AdmissionInput>> read_admission_inputs(const std::string& json_lines);
// A mix of chats, some with a long cached prefix; always the same.
std::vector<AdmissionInput> mixed_admission_inputs(std::size_t count);
// {"round", "admitted", "waiting", "stop", "requests", "extend", "cached", "pages", "bytes", "duration_us"}
std::string admission_json(std::size_t round, const AdmissionRound& told);

// Cases: round_1000q, a round of the mix of a thousand waiting requests; verdict, the part of one decision in it.
Result<std::vector<Case>> run_admission_bench(double scale);

}  // namespace levada::bench
