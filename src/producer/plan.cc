#include "producer/plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "base/sha256.h"

namespace levada::producer {
namespace {

using Json = nlohmann::json;

// Sorted keys, no blanks, ASCII: the same text in every program.
std::string canonical(const Json& value) { return value.dump(-1, ' ', true, Json::error_handler_t::replace); }

void append_u64(std::string& out, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

// The first sample of some content has its id as it is, the k-th repeat "-{k}".
Result<std::vector<std::string>> name_samples(const std::vector<PreparedSample>& samples) {
  std::vector<std::string> ids;
  std::map<std::string, std::int64_t> repeats;
  std::map<std::string, std::size_t> owner;
  for (const PreparedSample& sample : samples) {
    std::string id = sample.task_id;
    if (id.empty()) {
      id = content_id(sample);
      if (const std::int64_t k = repeats[id]++; k > 0) id += "-" + std::to_string(k);
    }
    const auto [first, is_new] = owner.emplace(id, ids.size());
    if (!is_new) {
      return invalid_argument(
          "samples " + std::to_string(first->second) + " and " + std::to_string(ids.size()) + " have the same id " + id,
          "task_id");
    }
    ids.push_back(std::move(id));
  }
  return ids;
}

std::vector<std::size_t> order_of_epoch(const std::vector<std::string>& ids, const PlanRules& rules,
                                        std::int64_t epoch) {
  std::vector<std::size_t> order(ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (rules.epochs == 1) return order;
  std::vector<std::string> keys;
  for (const std::string& id : ids) {
    std::string text;
    append_u64(text, static_cast<std::uint64_t>(rules.seed));
    append_u64(text, static_cast<std::uint64_t>(epoch));
    keys.push_back(sha256_hex(text + id));
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  return order;
}

}  // namespace

std::string content_id(const PreparedSample& sample) {
  const Json object{{"input_ids", sample.input_ids}, {"loss_mask", sample.loss_mask}};
  return "canonical-prompt-" + sha256_hex(canonical(object));
}

Result<Plan> make_plan(const std::vector<PreparedSample>& samples, const PlanRules& rules) {
  if (samples.empty()) return invalid_argument("no prompt is left to capture", "prompts");
  if (rules.epochs < 1) return invalid_argument("must be at least 1", "epochs");
  Plan plan;
  LEVADA_ASSIGN_OR_RETURN(plan.task_ids, name_samples(samples));
  Json ids = Json::array(), lengths = Json::array();
  for (std::int64_t epoch = 0; epoch < rules.epochs; ++epoch) {
    const std::string mark = epoch == 0 ? "" : ":e" + std::to_string(epoch);
    for (const std::size_t i : order_of_epoch(plan.task_ids, rules, epoch)) {
      const auto length = static_cast<std::int64_t>(samples[i].input_ids.size());
      plan.sources.push_back({rules.run_id + ":" + plan.task_ids[i] + mark, length});
      plan.samples.push_back(&samples[i]);
      ids.push_back(plan.task_ids[i] + mark);
      lengths.push_back(length);
    }
  }
  plan.source_digest = sha256_hex(canonical(Json{{"ids", ids}, {"ntokens", lengths}}));
  return plan;
}

std::string contract_digest(const CaptureContract& contract, const ContractIdentity& identity) {
  const Json object{{"strategy", "dflash"},
                    {"capture",
                     {{"feature_names", {kHiddenStates, kInputIds, kLossMask}},
                      {"aux_hidden_state_layer_ids", contract.aux_layer_ids},
                      {"target_hidden_size", contract.hidden_size},
                      {"target_repr", "hidden_states"},
                      {"dtype", to_string(contract.dtype)},
                      {"method", "patch"}}},
                    {"target_model_version", identity.target_model},
                    {"tokenizer_version", identity.tokenizer},
                    {"max_length", identity.max_length}};
  return sha256_hex(canonical(object));
}

}  // namespace levada::producer
