#include "producer/capture_call.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/hex.h"
#include "producer/capture_server.h"

namespace levada::producer {
namespace {

using Json = nlohmann::json;
using Kind = CaptureVerdict::Kind;

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text_of(const Json& object, const char* name) {
  const Json* value = member(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

Json passthrough(const char* name, std::vector<std::int64_t> data) {
  const std::size_t count = data.size();
  return {{"name", name}, {"data", std::move(data)}, {"shape", {1, count}}, {"dtype", "int64"}};
}

Json item_of(const CaptureTask& task, const CaptureContract& contract) {
  const PreparedSample& sample = *task.sample;
  Json item{{"store_id", contract.store_id},        {"sample_id", task.order.source_sample_id},
            {"gen", task.order.generation},         {"replace", task.order.replace},
            {"features", {{"aux", kHiddenStates}}}, {"layers", {{"aux", contract.aux_layer_ids}}},
            {"dtype", to_string(contract.dtype)},   {"passthrough", Json::array()}};
  item["passthrough"].push_back(passthrough(kInputIds, {sample.input_ids.begin(), sample.input_ids.end()}));
  item["passthrough"].push_back(passthrough(kLossMask, {sample.loss_mask.begin(), sample.loss_mask.end()}));
  return item;
}

// Lists within lists are looked through: one carrier wraps its result in a list of one.
void collect_results(const Json& value, std::vector<const Json*>& out) {
  if (value.is_object()) out.push_back(&value);
  if (!value.is_array()) return;
  for (const Json& inner : value) {
    if (inner.is_object()) out.push_back(&inner);
    if (inner.is_array()) {
      for (const Json& innermost : inner) {
        if (innermost.is_object()) out.push_back(&innermost);
      }
    }
  }
}

// The result of this row's sample; nullptr: the row has none at all.
const Json* result_of(const Json& row, const std::string& sample_id) {
  const Json* meta = member(row, "meta_info");
  const Json* value = meta == nullptr ? nullptr : member(*meta, "spec_capture");
  if (value == nullptr) return nullptr;
  std::vector<const Json*> results;
  collect_results(*value, results);
  for (const Json* result : results) {
    if (text_of(*result, "sample_id") == sample_id) return result;
  }
  return results.empty() ? nullptr : results.front();
}

bool is_of(const Json& result, const CaptureTask& task, const CaptureContract& contract, bool is_error) {
  const std::string sample_id = text_of(result, "sample_id");
  if (is_error && sample_id.empty()) return true;  // an item that could not be read has no name
  if (sample_id != task.order.source_sample_id) return false;
  if (is_error) return true;
  const Json* generation = member(result, "gen");
  return text_of(result, "store_id") == contract.store_id && generation != nullptr && generation->is_number_integer() &&
         generation->get<std::int64_t>() == task.order.generation;
}

struct WantedTensor {
  const char* name;
  DType dtype;
  std::vector<std::int64_t> shape;
};

std::vector<WantedTensor> wanted_tensors(const CaptureTask& task, const CaptureContract& contract) {
  const auto length = static_cast<std::int64_t>(task.sample->input_ids.size());
  return {{kHiddenStates, contract.dtype, {1, length, contract.aux_width()}},
          {kInputIds, DType::kI64, {1, length}},
          {kLossMask, DType::kI64, {1, length}}};
}

std::string shape_text(const Json& shape) { return shape.dump(); }

// Why `feature` is not `wanted`; empty if it is, and then `tensor` is filled.
std::string read_tensor(const Json& feature, const WantedTensor& wanted, core::StoredTensor& tensor) {
  const Json* shape = member(feature, "shape");
  if (shape == nullptr || *shape != Json(wanted.shape)) {
    return std::string(wanted.name) + " has shape " + (shape == nullptr ? "none" : shape_text(*shape)) + ", wanted " +
           shape_text(Json(wanted.shape));
  }
  const std::string dtype = text_of(feature, "dtype");
  if (dtype != to_string(wanted.dtype)) {
    return std::string(wanted.name) + " has dtype \"" + dtype + "\", wanted " + std::string(to_string(wanted.dtype));
  }
  const auto checksum = parse_hex64(text_of(feature, "checksum"));
  if (!checksum.ok()) return std::string(wanted.name) + ".checksum " + checksum.status().message();
  tensor = {wanted.name, wanted.dtype, wanted.shape, *checksum};
  return {};
}

// Rows shorter or longer than the prompt are told before anything else: a cached prefix was not computed.
std::string wrong_length(const Json& features, std::int64_t length) {
  for (const auto& [name, feature] : features.items()) {
    const Json* shape = member(feature, "shape");
    if (shape == nullptr || !shape->is_array() || shape->size() < 2 || (*shape)[1] == Json(length)) continue;
    return name + " has " + (*shape)[1].dump() + " rows for a prompt of " + std::to_string(length) + " tokens";
  }
  return {};
}

std::string read_store(const Json& result, StoreChoice choice, core::SampleRef& ref) {
  const auto incarnation = parse_hex64(text_of(result, "incarnation"));
  if (!incarnation.ok()) return "incarnation " + incarnation.status().message();
  ref.incarnation = *incarnation;
  const Json* store = member(result, "store");
  StoreUrls urls;
  if (store != nullptr) urls = {text_of(*store, "shm"), text_of(*store, "tcp"), text_of(*store, "ucx")};
  Result<std::string> url = choose_store(urls, choice);
  if (!url.ok()) return url.status().message();
  ref.store_url = *std::move(url);
  return {};
}

// Whichever of upstream's two names is there; a reply without addresses says nothing of an arena.
void read_arena(const Json& result, const Json& features, core::SampleRef& ref) {
  const Json* arena = member(result, "nvlink");
  if (arena == nullptr) arena = member(result, "arena");
  if (arena == nullptr) return;
  core::ArenaPlace place{text_of(*arena, "session"), text_of(*arena, "control"), {}};
  const auto names_a_port = [](const std::string& address) { return !address.empty() && address.size() <= 512; };
  if (!names_a_port(place.session) || !names_a_port(place.control)) return;
  for (const core::StoredTensor& tensor : ref.tensors) {
    const Json* address = member(features.at(tensor.name), "address");
    if (address == nullptr || !address->is_number_unsigned()) return;
    place.addresses.push_back(address->get<std::uint64_t>());
  }
  ref.arena = std::move(place);
}

// Empty, or how the result breaks the contract.
std::string read_result(const Json& result, const CaptureTask& task, const CaptureContract& contract, StoreChoice store,
                        core::SampleRef& ref) {
  const auto length = static_cast<std::int64_t>(task.sample->input_ids.size());
  const Json* features = member(result, "features");
  if (features == nullptr || !features->is_object()) return "features is missing";
  if (std::string fault = wrong_length(*features, length); !fault.empty()) return fault;
  const Json* layers = member(result, "aux_layer_ids");
  if (layers == nullptr || *layers != Json(contract.aux_layer_ids)) {
    return "aux_layer_ids is " + (layers == nullptr ? "missing" : layers->dump()) + ", wanted " +
           Json(contract.aux_layer_ids).dump();
  }
  const std::vector<WantedTensor> wanted = wanted_tensors(task, contract);
  for (const WantedTensor& tensor : wanted) {
    const Json* feature = member(*features, tensor.name);
    if (feature == nullptr) return std::string("feature ") + tensor.name + " is missing";
    core::StoredTensor stored;
    if (std::string fault = read_tensor(*feature, tensor, stored); !fault.empty()) return fault;
    ref.tensors.push_back(std::move(stored));
  }
  if (features->size() != wanted.size()) return "features holds more than what was asked for";
  if (std::string fault = read_store(result, store, ref); !fault.empty()) return fault;
  read_arena(result, *features, ref);
  ref.store_id = contract.store_id;
  ref.sample_id = task.order.source_sample_id;
  ref.generation = static_cast<std::uint32_t>(task.order.generation);
  ref.num_tokens = static_cast<std::int32_t>(length);
  ref.aux_layer_ids = contract.aux_layer_ids;
  return {};
}

CaptureVerdict failed(Kind kind, std::string error) { return {kind, {}, std::move(error)}; }

Result<CaptureVerdict> judge(const Json& row, const CaptureTask& task, const CaptureContract& contract,
                             StoreChoice store) {
  if (!row.is_object()) return unavailable("a row is no object");
  const Json* result = result_of(row, task.order.source_sample_id);
  if (result == nullptr) return failed(Kind::kTerminal, "the server does not capture: the row has no spec_capture");
  const Json* error = member(*result, "error");
  if (!is_of(*result, task, contract, error != nullptr)) {
    return unavailable("a row belongs to \"" + text_of(*result, "sample_id") + "\", asked was " +
                       task.order.source_sample_id + " generation " + std::to_string(task.order.generation));
  }
  if (error != nullptr) {
    const Json* retryable = member(*result, "retryable");
    const bool hopeless = retryable != nullptr && *retryable == Json(false);
    return failed(hopeless ? Kind::kRefused : Kind::kRetryable,
                  error->is_string() ? error->get<std::string>() : error->dump());
  }
  CaptureVerdict verdict;
  if (std::string fault = read_result(*result, task, contract, store, verdict.ref); !fault.empty()) {
    return failed(Kind::kTerminal, std::move(fault));
  }
  return verdict;
}

}  // namespace

std::string capture_body(const std::vector<CaptureTask>& tasks, const CaptureContract& contract,
                         const std::function<std::string()>& fresh_key) {
  // One token is asked for: no server refuses it, and it ends right after the prefill.
  Json body{{"input_ids", Json::array()},
            {"extra_key", Json::array()},
            {"sampling_params", {{"temperature", 0.0}, {"max_new_tokens", 1}}},
            {"spec_capture", Json::array()}};
  for (const CaptureTask& task : tasks) {
    body["input_ids"].push_back(task.sample->input_ids);
    body["extra_key"].push_back(fresh_key());
    body["spec_capture"].push_back(item_of(task, contract));
  }
  return body.dump();
}

Result<std::vector<CaptureVerdict>> read_capture_reply(const std::string& body, const std::vector<CaptureTask>& tasks,
                                                       const CaptureContract& contract, StoreChoice store) {
  const Json rows = Json::parse(body, nullptr, false);
  if (!rows.is_array()) return unavailable("the reply is no JSON list");
  if (rows.size() != tasks.size()) {
    return unavailable("the reply has " + std::to_string(rows.size()) + " rows for " + std::to_string(tasks.size()) +
                       " prompts");
  }
  std::vector<CaptureVerdict> verdicts;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    LEVADA_ASSIGN_OR_RETURN(CaptureVerdict verdict, judge(rows[i], tasks[i], contract, store));
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

}  // namespace levada::producer
