// What: DraftStage, a StepExecutor before another one: it answers what plans ask to be proposed, rightly or wrongly, and
// counts what becomes of the drafts; Relay, which lets several stages, each with a scheduler of its own, use one executor.
// Owner: a bench. The Relay outlives its stages, the executor the Relay.
// Thread: submit() on the thread of the stage's scheduler, results on the executor's; schedulers take turns.
// Invariant: the scheduler's way is the one of service: only where proposals come from is made up. Then the executor sees
// neither draft nor proposals, so that a step costs its rows and no draft model.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "core/step_executor.h"

namespace levada::bench {

class DraftStage;

class Relay {
 public:
  explicit Relay(core::StepExecutor& executor);
  void submit(DraftStage* stage, std::unique_ptr<core::StepPlan> plan);

 private:
  core::StepExecutor& executor_;
  std::mutex mutex_;
  std::deque<DraftStage*> waiting_;  // in the order of plans
};

// Of steps that decode: a prompt's last chunk is none.
struct DraftCount {
  std::int64_t steps = 0, accepted = 0, drafts = 0;
  std::vector<std::int64_t> had, kept;  // by place in the block: verifications that had a draft there, and kept it
  double length() const { return steps == 0 ? 0 : 1 + static_cast<double>(accepted) / static_cast<double>(steps); }
  void add(std::int32_t drafts_of_step, std::int32_t accepted_of_step);
};

class DraftStage final : public core::StepExecutor {
 public:
  enum class Proposals { kOwn, kRight, kWrong };  // kOwn: the executor's
  DraftStage(Relay& relay, Proposals proposals) : relay_(relay), proposals_(proposals) {}

  // The answer a request would get by plain decoding; its first token stands behind `prompt_tokens` others. REQUIRES for
  // kRight and kWrong: before the request is submitted.
  void expect(core::RequestId request, std::int32_t prompt_tokens, std::vector<core::Token> answer);
  void forget_requests();
  // Since the last call.
  DraftCount take_count();

  void submit(std::unique_ptr<core::StepPlan> plan) override;
  void set_result_sink(std::function<void(core::StepResult)> sink) override { sink_ = std::move(sink); }
  void on_result(core::StepResult result);  // from the Relay

 private:
  struct Slice {
    core::RequestId request;
    std::int32_t first_sample, position, propose;  // position: of the token that the first sample gives
    bool decodes;
    std::vector<core::Token> drafts;
  };
  struct Answer {
    std::int32_t prompt_tokens;
    std::vector<core::Token> tokens;
  };
  void propose(const Slice& slice, std::int32_t position, std::vector<core::Token>& proposed) const;

  Relay& relay_;
  const Proposals proposals_;
  std::function<void(core::StepResult)> sink_;
  std::mutex mutex_;
  std::map<core::RequestId, Answer> answers_;
  std::deque<std::vector<Slice>> plans_;
  DraftCount count_;
};

}  // namespace levada::bench
