// What: ScriptedModel, a StepExecutor for simulators whose next token is a hash of the context it can actually read
// through the block table; ScriptedReference, the same model over a plain token list.
// Owner: tests and benches.
// Thread: one; compute_one() decides when a plan is done, so delays are the caller's choice.
// Invariant: each KV slot remembers token, position and a hash of the whole context it was computed from. A wrong page,
// a missing write, a page reused too early or a token out of order changes every later token of the request. Its drafts are
// often right, its text repeats itself for every fourth seed; a draft that would read what it never wrote aborts.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/request.h"
#include "core/step_executor.h"

namespace levada::sched::sim {

class ScriptedModel final : public core::StepExecutor {
 public:
  // `of_next_token`: its draft's numbers are a function of the token behind each one, too, as an EAGLE-3 draft's.
  ScriptedModel(std::int32_t total_pages, std::int32_t page_size_tokens, std::int32_t vocab_size,
                bool of_next_token = false);

  // Aborts on a plan that breaks the contract of core/step_plan.h or writes a page another slice uses.
  void submit(std::unique_ptr<core::StepPlan> plan) override;
  void set_result_sink(std::function<void(core::StepResult)> sink) override { sink_ = std::move(sink); }

  // Computes the oldest plan and sends its result; false when there is none.
  bool compute_one();
  // The next plan computed fails, having scribbled over the slots it should have written.
  void fail_next(Status why) { failure_ = std::move(why); }
  // Every plan computed from now on fails so, and says that the executor is lost.
  void lose(Status why) {
    failure_ = std::move(why);
    lost_ = true;
  }
  // What a freed page looks like to whoever still reads it.
  void poison(core::PageId page);

  std::size_t in_flight() const { return plans_.size(); }
  // Over every number of every plan so far.
  std::uint64_t plans_hash() const { return plans_hash_; }

 private:
  struct Slot {
    std::uint64_t deep;
    std::int32_t token, position;
    // Of the draft planes: who wrote them and over which context; kNoDraft: nobody, or the noise of a block.
    core::DraftVersion draft = core::kNoDraft;
    std::uint64_t draft_deep = 0;
  };
  // How a slice ended: the hash behind its last valid token, that token's position, the sample that chose the next.
  struct End {
    std::uint64_t context;
    std::int32_t position;
    core::Token next;
  };
  End sample_slice(const core::StepPlan& plan, const core::PlanSlice& slice, std::span<const std::uint64_t> contexts,
                   core::StepResult& result) const;
  void propose(const core::StepPlan& plan, const core::PlanSlice& slice, const End& end, core::StepResult& result);
  // What the draft makes of a row with this hash and this token behind it (-1: nobody knows).
  std::uint64_t draft_deep_of(std::uint64_t deep, core::Token next) const;
  // Of the slice's rows up to `end`, once the token behind each is known.
  void write_draft_planes(const core::StepPlan& plan, const core::PlanSlice& slice, const End& end);
  Slot& slot(const core::StepPlan& plan, const core::PlanSlice& slice, std::int32_t position);
  void check_plan(const core::StepPlan& plan) const;
  void resolve_future_tokens(core::StepPlan& plan) const;
  core::StepResult execute(const core::StepPlan& plan);

  std::int32_t page_size_, vocab_size_;
  bool of_next_token_;
  std::vector<Slot> slots_;
  std::deque<std::unique_ptr<core::StepPlan>> plans_;
  std::vector<core::Token> previous_samples_;
  std::function<void(core::StepResult)> sink_;
  Status failure_;
  bool lost_ = false;
  std::uint64_t plans_hash_ = 0;
};

// Allows two ids of three, other ones after each token.
class ScriptedGuide final : public core::TokenGuide {
 public:
  bool allowed(std::span<std::uint32_t> words) override;
  Status accept(core::Token token) override;
  void rollback(std::int32_t tokens) override { accepted_ -= tokens; }

 private:
  std::int32_t accepted_ = 0;
};

// Feeds a request's tokens one by one; next() is the token the model would sample after them.
class ScriptedReference {
 public:
  ScriptedReference(const core::SamplingParams& sampling, std::span<const core::Token> eos, std::int32_t vocab_size,
                    std::vector<core::Token> prompt, std::shared_ptr<core::TokenGuide> guide = nullptr);
  // Samples and appends.
  core::Token next();
  // What the model says of the row of a token that was fed: its hidden state, and how probable `next` is after it.
  float hidden(std::int32_t row) const;
  core::TokenLogprob logprob(std::int32_t row, core::Token next, std::int32_t top) const;

 private:
  void feed(core::Token token);

  core::SamplingParams sampling_;
  std::vector<core::Token> banned_;
  std::int32_t vocab_size_, prompt_tokens_;
  std::shared_ptr<core::TokenGuide> guide_;
  std::vector<core::Token> tokens_;
  std::uint64_t context_;
  std::vector<std::uint64_t> contexts_;  // after each token
};

}  // namespace levada::sched::sim
