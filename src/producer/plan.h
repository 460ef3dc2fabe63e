// What: Plan, the positions of a run: which prepared sample stands where, under which id, and the digests by which two
// processes know that they mean the same plan and the same captures.
// Owner: a value; made once, before the registry opens.
// Thread: any.
// Invariant: an id is a function of the sample's content alone (or explicit), whatever stands before or after it in the
// file; ids are unique. The same samples, epochs and seed give the same plan in every process.
// Format: docs/formats/prompts.md ("ids and digests").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "fanout/run_config.h"
#include "producer/capture_call.h"
#include "producer/prepared.h"

namespace levada::producer {

struct Plan {
  std::vector<fanout::Source> sources;         // by position
  std::vector<const PreparedSample*> samples;  // by position; borrowed
  std::vector<std::string> task_ids;           // by sample
  std::string source_digest;
};

// "canonical-prompt-{SHA-256 of the sample as canonical JSON}".
std::string content_id(const PreparedSample& sample);

struct PlanRules {
  std::string run_id;
  std::int64_t epochs = 1;  // one: file order; more: each epoch in an order of its own, the same for everybody
  std::int64_t seed = 42;
};

// kInvalidArgument if there is no sample or two have the same id. `samples` must outlive the plan.
Result<Plan> make_plan(const std::vector<PreparedSample>& samples, const PlanRules& rules);

// What a capture contains and was computed by; everything that must not differ between what a draft was trained on.
struct ContractIdentity {
  std::string target_model, tokenizer;
  std::int64_t max_length = 0;
};
std::string contract_digest(const CaptureContract& contract, const ContractIdentity& identity);

}  // namespace levada::producer
