// What: Bench, a Brain and a ScriptedModel in lockstep, for tests that say what a request meets.
// Owner: tests.
// Thread: one.
// Invariant: nothing is random; turn() is one step of the real loop with the device always ready.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "sched/brain.h"
#include "sched/sim/scripted_model.h"

namespace levada::sched {

using core::FinishReason;
using core::RequestId;
using core::Token;

inline constexpr std::int32_t kVocab = 320;

struct Scene {
  std::int32_t page_size = 4, total_pages = 250, context = 4000;
  Options options = {};
  const text::Tokenizer* tokenizer = nullptr;
  std::int32_t max_samples = 1024;
  bool of_next_token = false;  // see core::KvPlane
};

// A brain and a scripted model driven in lockstep: turn() is one step of the real loop with the device always ready.
class Bench {
 public:
  explicit Bench(Scene setup)
      : layout(setup.page_size, {{"k", core::kTargetGroup, DType::kF32, 1, {0}},
                                 {"draft_k", core::kDraftGroup, DType::kF32, 1, {0}, 0, "", setup.of_next_token}}),
        limits{setup.context, setup.total_pages, kVocab, {}, setup.max_samples},
        model(setup.total_pages, setup.page_size, kVocab, setup.of_next_token),
        brain(setup.options, limits, layout, setup.tokenizer, clock, metrics) {
    model.set_result_sink([this](core::StepResult result) { brain.apply(result); });
  }

  void submit(std::uint64_t id, std::vector<Token> prompt, std::int32_t max_new, std::vector<std::string> stop = {}) {
    core::Request request = greedy(id, std::move(prompt), max_new);
    request.sampling.stop = std::move(stop);
    submit(std::move(request));
  }
  void submit(core::Request request) {
    brain.submit(std::move(request));
    collect();
  }
  static core::Request greedy(std::uint64_t id, std::vector<Token> prompt, std::int32_t max_new) {
    core::Request request;
    request.id = RequestId{id};
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = max_new;
    request.sampling.seed = 1;
    return request;
  }
  void abort(std::uint64_t id) {
    brain.abort(RequestId{id}, {StatusCode::kAborted, "the client left"});
    collect();
  }
  // One plan is submitted, then the oldest is computed.
  void turn() {
    plan();
    model.compute_one();
    collect();
  }
  void plan() {
    if (auto plan = brain.next_plan()) model.submit(std::move(plan));
  }
  void run_until_idle(std::int32_t most_turns = 5000) {
    for (std::int32_t i = 0; i < most_turns && !brain.idle(); ++i) turn();
    ASSERT_TRUE(brain.idle()) << "not idle after " << most_turns << " turns";
  }
  void collect() {
    for (core::OutputDelta& delta : brain.take_deltas()) {
      auto& answer = answers[core::value(delta.request)];
      answer.ids.insert(answer.ids.end(), delta.token_ids.begin(), delta.token_ids.end());
      answer.text += delta.text;
      answer.cached_tokens = delta.cached_tokens;
      answer.speculation = delta.speculation;
      answer.logprobs.insert(answer.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
      answer.hidden.insert(answer.hidden.end(), delta.hidden.begin(), delta.hidden.end());
      if (delta.finish) answer.finishes.push_back(*delta.finish);
    }
  }
  FinishReason reason(std::uint64_t id) {
    EXPECT_EQ(answers[id].finishes.size(), 1u) << "request " << id;
    return answers[id].finishes.at(0).reason;
  }
  // Everything is back: nothing leased, nothing locked, and a flush empties the tree.
  void expect_all_returned() {
    EXPECT_TRUE(brain.audit().ok()) << brain.audit().to_string();
    const Snapshot snapshot = brain.snapshot();
    EXPECT_EQ(snapshot.running + snapshot.waiting + snapshot.prefilling, 0);
    EXPECT_EQ(snapshot.leased_pages, 0);
    EXPECT_EQ(snapshot.free_pages + snapshot.evictable_pages, limits.total_pages);
  }

  struct Answer {
    std::vector<Token> ids;
    std::string text;
    std::vector<core::Finish> finishes;
    std::int32_t cached_tokens = 0;
    core::SpeculationCount speculation;
    std::vector<core::TokenLogprob> logprobs;
    std::vector<float> hidden;
  };
  core::KvLayout layout;
  Limits limits;
  ManualClock clock;
  Metrics metrics;
  sim::ScriptedModel model;
  Brain brain;
  std::map<std::uint64_t, Answer> answers;
};

inline std::vector<Token> prompt(std::int32_t tokens, Token first = 5) {
  std::vector<Token> ids;
  for (std::int32_t i = 0; i < tokens; ++i) ids.push_back((first + 7 * i) % kVocab);
  return ids;
}

}  // namespace levada::sched
