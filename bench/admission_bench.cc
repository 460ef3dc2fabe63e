#include "bench/admission_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <utility>

#include "sched/prefill_admission.h"
#include "sched/waiting_queue.h"

namespace levada::bench {
namespace {

using sched::AdmissionReason;
using sched::PrefillAdmission;

class Rounds {
 public:
  Rounds(const std::vector<AdmissionInput>& inputs, const AdmissionSetup& setup)
      : inputs_(inputs),
        setup_(setup),
        layout_(setup.page_size_tokens,
                {{"kv", "target", DType::kI8, static_cast<std::int32_t>(setup.bytes_per_token), {0}}}) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      core::Request request;
      request.id = core::RequestId{i};
      request.prompt.resize(1);  // lengths are the list's
      states_.push_back(
          std::make_unique<sched::RequestState>(std::move(request), kv::NamespaceRef(), sched::StopRules{}, nullptr));
      states_.back()->arrival = i;
      queue_.push_back(*states_.back());
    }
  }

  Status check() const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (whole_need(i) > setup_.pages)
        return payload_too_large("request " + std::to_string(i) + " needs " + std::to_string(whole_need(i)) +
                                 " pages, there are " + std::to_string(setup_.pages));
    }
    return {};
  }

  std::vector<AdmissionRound> run() {
    std::vector<AdmissionRound> rounds;
    while (!queue_.empty() || chunked_ != nullptr) {
      AdmissionRound round = next();
      pass_time(round.admitted.empty());
      if (!round.admitted.empty()) rounds.push_back(std::move(round));
    }
    return rounds;
  }

 private:
  struct Running {
    std::int64_t rounds_left, pages;
  };

  std::size_t index_of(const sched::RequestState& state) const { return core::value(state.request.id); }
  std::int32_t input_tokens(std::size_t i) const { return inputs_[i].cached_tokens + inputs_[i].extend_tokens; }
  std::int64_t whole_need(std::size_t i) const {
    const std::int32_t expected = std::min(inputs_[i].max_new_tokens, PrefillAdmission::kMaxNewTokensEstimate);
    return sched::pages_to_come(layout_, std::int64_t{input_tokens(i)} + expected,
                                layout_.pages_for(inputs_[i].cached_tokens));
  }

  sched::AdmissionLimits limits() const {
    sched::AdmissionLimits limits;
    const auto active = static_cast<std::int64_t>(running_.size()) + (chunked_ != nullptr ? 1 : 0);
    limits.request_slots = static_cast<std::int32_t>(setup_.max_running_requests - active);
    limits.input_tokens = setup_.max_prefill_tokens;
    if (setup_.chunk_tokens > 0) limits.chunk_tokens = setup_.chunk_tokens;
    return limits;
  }

  AdmissionRound next() {
    AdmissionRound round;
    const auto start = std::chrono::steady_clock::now();
    PrefillAdmission admission(layout_, limits());
    AdmissionReason reason = AdmissionReason::kContinue;
    if (chunked_ != nullptr) {
      const std::size_t i = index_of(*chunked_);
      take(round, i, admission.continue_chunk(chunked_done_, input_tokens(i)));
      if (chunked_ != nullptr) reason = AdmissionReason::kOther;
    }
    while (!queue_.empty() && reason == AdmissionReason::kContinue) {
      const std::size_t i = index_of(queue_.front());
      const sched::AdmissionVerdict verdict =
          admission.try_add({inputs_[i].cached_tokens, input_tokens(i), inputs_[i].max_new_tokens}, free_);
      reason = verdict.reason;
      if (verdict.extend_tokens == 0) break;
      begin(round, i);
      take(round, i, verdict.extend_tokens);
    }
    round.duration_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    round.waiting = static_cast<std::size_t>(queue_.size());
    round.stop = reason == AdmissionReason::kNoToken ? "no_token"
                 : reason == AdmissionReason::kOther ? "other"
                                                     : "empty";
    round.bytes = round.pages * layout_.bytes_per_page();
    return round;
  }

  void begin(AdmissionRound& round, std::size_t i) {
    chunked_ = &queue_.front();
    queue_.pop_front();
    chunked_done_ = inputs_[i].cached_tokens;
    free_ -= whole_need(i);
    round.pages += whole_need(i);
    round.cached_tokens += inputs_[i].cached_tokens;
  }

  // A part of the prompt of the request that is under way.
  void take(AdmissionRound& round, std::size_t i, std::int32_t extend_tokens) {
    chunked_done_ += extend_tokens;
    const bool whole = chunked_done_ == input_tokens(i);
    round.admitted.push_back({i, extend_tokens, whole});
    round.extend_tokens += extend_tokens;
    if (!whole) return;
    running_.push_back({std::max(inputs_[i].max_new_tokens, 1), whole_need(i)});
    chunked_ = nullptr;
  }

  // One step, or as many as the shortest answer needs where nothing can change before.
  void pass_time(bool idle) {
    std::int64_t steps = 1;
    if (idle && !running_.empty()) {
      steps = std::min_element(running_.begin(), running_.end(), [](const Running& a, const Running& b) {
                return a.rounds_left < b.rounds_left;
              })->rounds_left;
    }
    for (Running& running : running_) {
      running.rounds_left -= steps;
      if (running.rounds_left <= 0) free_ += running.pages;
    }
    std::erase_if(running_, [](const Running& running) { return running.rounds_left <= 0; });
  }

  const std::vector<AdmissionInput>& inputs_;
  const AdmissionSetup setup_;
  const core::KvLayout layout_;
  std::vector<std::unique_ptr<sched::RequestState>> states_;
  sched::WaitingQueue queue_;
  sched::RequestState* chunked_ = nullptr;  // whose prompt is not whole yet
  std::int32_t chunked_done_ = 0;
  std::vector<Running> running_;
  std::int64_t free_ = setup_.pages;
};

}  // namespace

Result<std::vector<AdmissionRound>> run_admission(const std::vector<AdmissionInput>& inputs,
                                                  const AdmissionSetup& setup) {
  Rounds rounds(inputs, setup);
  LEVADA_RETURN_IF_ERROR(rounds.check());
  return rounds.run();
}

Result<std::vector<AdmissionInput>> read_admission_inputs(const std::string& json_lines) {
  constexpr std::int32_t kMostTokens = 1 << 24;
  std::vector<AdmissionInput> inputs;
  std::istringstream lines(json_lines);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    const std::string where = "line " + std::to_string(number);
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) return invalid_argument(where + " is not a JSON object");
    AdmissionInput input;
    for (const auto& [name, value] : object.items()) {
      std::int32_t* const field = name == "cached"    ? &input.cached_tokens
                                  : name == "extend"  ? &input.extend_tokens
                                  : name == "max_new" ? &input.max_new_tokens
                                                      : nullptr;
      const bool counts = value.is_number_unsigned() && value.get<std::uint64_t>() <= kMostTokens;
      if (field == nullptr && name != "l2_hit") return invalid_argument(where + ": unknown field " + name);
      if (!counts) return invalid_argument(where + ": must be a number of tokens up to 16777216", name);
      if (field != nullptr) *field = value.get<std::int32_t>();
      if (field == nullptr && value != 0) return invalid_argument(where + ": there is no second tier", name);
    }
    if (input.extend_tokens == 0) return invalid_argument(where + ": must be 1 at least", "extend");
    inputs.push_back(input);
  }
  return inputs;
}

std::vector<AdmissionInput> mixed_admission_inputs(std::size_t count) {
  std::mt19937 random(20261130);
  std::vector<AdmissionInput> inputs;
  for (std::size_t i = 0; i < count; ++i) {
    const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
    inputs.push_back({below(3) == 0 ? 16 * below(256) : 0, 1 + below(1024), 1 + below(256)});
  }
  return inputs;
}

std::string admission_json(std::size_t round, const AdmissionRound& told) {
  nlohmann::ordered_json admitted = nlohmann::ordered_json::array();
  for (const AdmissionRound::Admitted& part : told.admitted)
    admitted.push_back({{"request", part.request}, {"extend", part.extend_tokens}, {"whole", part.whole}});
  const nlohmann::ordered_json line = {{"round", round},
                                       {"admitted", std::move(admitted)},
                                       {"waiting", told.waiting},
                                       {"stop", told.stop},
                                       {"requests", told.admitted.size()},
                                       {"extend", told.extend_tokens},
                                       {"cached", told.cached_tokens},
                                       {"pages", told.pages},
                                       {"bytes", told.bytes},
                                       {"duration_us", told.duration_us}};
  return line.dump();
}

Result<std::vector<Case>> run_admission_bench(double scale) {
  AdmissionSetup setup;
  setup.chunk_tokens = 0;
  const std::vector<AdmissionInput> inputs = mixed_admission_inputs(1000);
  std::vector<double> rounds, verdicts;
  for (int i = std::max(1, static_cast<int>(20 * scale)); i > 0; --i) {
    LEVADA_ASSIGN_OR_RETURN(const std::vector<AdmissionRound> told, run_admission(inputs, setup));
    for (const AdmissionRound& round : told) {
      rounds.push_back(round.duration_us);
      verdicts.push_back(round.duration_us / static_cast<double>(round.admitted.size()));
    }
  }
  return std::vector<Case>{summarize_us("round_1000q", std::move(rounds)),
                           summarize_us("verdict", std::move(verdicts))};
}

}  // namespace levada::bench
