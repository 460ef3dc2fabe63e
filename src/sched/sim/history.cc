#include "sched/sim/history.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "sched/brain.h"
#include "sched/sim/scripted_model.h"

namespace levada::sched::sim {
namespace {

using core::FinishReason;
using core::Token;

struct Answer {
  std::vector<Token> ids;
  std::string text;
  std::vector<core::TokenLogprob> logprobs, prompt_logprobs;
  std::vector<float> hidden;
  std::optional<core::Finish> finish;
  std::int32_t finishes = 0, cached_tokens = -1, completion_tokens = 0;
  core::SpeculationCount speculation;
};

class History {
 public:
  History(std::uint64_t seed, const text::Tokenizer* tokenizer, Guides guides);
  HistoryReport run();

 private:
  std::int32_t pick(std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random_);
  }
  bool chance(std::int32_t percent) { return pick(1, 100) <= percent; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[pick(0, static_cast<std::int32_t>(values.size()) - 1)];
  }
  Options random_options();
  Limits random_limits();
  core::Request random_request(std::uint64_t id);
  core::SamplingParams random_sampling();
  void add_wishes(core::Request& request);
  void add_choices(core::Request choice);
  void act();
  void swap_draft();
  void plan();
  void collect();
  void poison_free_pages();
  void judge();
  void judge(const core::Request& request, const Answer& answer);
  void count_cut_families();
  void judge_wishes(const std::string& who, const Answer& answer, const Answer& expected);
  Answer solo(const core::Request& request) const;
  static void solo_wishes(const core::Request& request, const ScriptedReference& model, Answer& answer);
  void fail(std::string what) {
    if (report_.failure.empty()) report_.failure = std::move(what);
  }

  std::mt19937_64 random_;
  const text::Tokenizer* tokenizer_;
  const Guides guides_;
  core::KvLayout layout_;
  Limits limits_;
  Options options_;
  std::int32_t abort_percent_, failure_percent_;
  ManualClock clock_;
  Metrics metrics_;
  ScriptedModel model_;
  Brain brain_;
  std::vector<std::vector<Token>> shared_prefixes_;
  std::vector<core::Request> requests_;
  std::size_t submitted_ = 0;
  std::map<core::RequestId, Answer> answers_;
  HistoryReport report_;
};

std::shared_ptr<core::TokenGuide> scripted_guide(core::RequestId) { return std::make_shared<ScriptedGuide>(); }

History::History(std::uint64_t seed, const text::Tokenizer* tokenizer, Guides guides)
    : random_(seed),
      tokenizer_(tokenizer),
      guides_(guides ? std::move(guides) : scripted_guide),
      layout_(one_of({1, 4, 16}),
              {core::KvPlane{"k", core::kTargetGroup, DType::kF32, 1, {0}},
               core::KvPlane{"draft_k", core::kDraftGroup, DType::kF32, 1, {0}, 0, "", chance(50)}}),
      limits_(random_limits()),
      options_(random_options()),
      abort_percent_(one_of({0, 0, 3, 10})),
      failure_percent_(one_of({0, 0, 0, 2})),
      model_(limits_.total_pages, layout_.page_size_tokens(), kVocab, layout_.of_next_token()),
      brain_(options_, limits_, layout_, tokenizer, clock_, metrics_) {
  model_.set_result_sink([this](core::StepResult result) { brain_.apply(result); });
  for (std::int32_t i = 0; i < 3; ++i) {
    shared_prefixes_.emplace_back();
    for (std::int32_t t = pick(8, 60); t > 0; --t) shared_prefixes_.back().push_back(pick(0, kVocab - 1));
  }
  const std::int32_t count = pick(4, 24);
  while (static_cast<std::int32_t>(requests_.size()) < count) {
    requests_.push_back(random_request(requests_.size() + 1));
    if (chance(15)) add_choices(requests_.back());
  }
}

Limits History::random_limits() {
  Limits limits;
  limits.context_length_tokens = pick(40, 200);
  limits.total_pages = std::max(pick(48, 240) / layout_.page_size_tokens(), 2);
  limits.vocab_size = kVocab;
  limits.eos_token_ids = {kEos};
  return limits;
}

Options History::random_options() {
  Options options;
  options.max_running_requests = pick(1, 8);
  options.chunked_prefill_size = one_of({-1, 1, 7, 16, 32, 64});
  options.max_prefill_tokens = one_of({16, 64, 16384});
  options.schedule_policy = one_of<const char*>({"fcfs", "lpm"});
  options.schedule_conservativeness = one_of({0.0, 0.0, 0.3, 1.0, 2.0});
  options.enable_priority_scheduling = chance(50);
  options.schedule_low_priority_values_first = chance(20);
  options.priority_scheduling_preemption_threshold = one_of({0, 1, 10});
  options.disable_radix_cache = chance(15);
  options.disable_overlap_schedule = chance(30);
  options.speculative_algorithm = one_of<const char*>({"auto", "auto", "auto", "NGRAM", "none"});
  options.speculative_num_draft_tokens = one_of({0, 0, 2, 5});
  options.speculative_adaptive = chance(50);
  return options;
}

core::SamplingParams History::random_sampling() {
  core::SamplingParams sampling;
  sampling.temperature = one_of({0.0f, 1.0f});
  sampling.seed = static_cast<std::uint64_t>(pick(0, 1'000'000));
  if (chance(25)) sampling.frequency_penalty = 0.5f;
  if (chance(10)) sampling.logit_bias = {{pick(0, kVocab - 1), 1.0f}};
  sampling.max_new_tokens = pick(1, 80);
  if (chance(20)) sampling.min_new_tokens = pick(1, 20);
  sampling.ignore_eos = chance(50);
  for (std::int32_t n = chance(40) ? pick(1, 4) : 0; n > 0; --n) sampling.stop_token_ids.push_back(pick(0, kVocab - 1));
  if (tokenizer_ != nullptr && chance(40)) {
    // Single letters and digits occur often, pairs rarely.
    for (std::int32_t n = pick(1, 3); n > 0; --n) {
      std::string stop(1, static_cast<char>(pick('0', 'z')));
      if (chance(30)) stop += static_cast<char>(pick('0', 'z'));
      sampling.stop.push_back(stop);
    }
    sampling.no_stop_trim = chance(20);
  }
  return sampling;
}

core::Request History::random_request(std::uint64_t id) {
  core::Request request;
  request.id = core::RequestId{id};
  if (chance(70)) {
    request.prompt = shared_prefixes_[static_cast<std::size_t>(pick(0, 2))];
    request.prompt.resize(static_cast<std::size_t>(pick(1, static_cast<std::int32_t>(request.prompt.size()))));
  }
  for (std::int32_t t = request.prompt.empty() ? pick(1, 60) : pick(0, 20); t > 0; --t)
    request.prompt.push_back(pick(0, kVocab - 1));
  request.sampling = random_sampling();
  if (chance(20)) request.cache_namespace.extra_key = one_of<const char*>({"", "a"});
  add_wishes(request);
  return request;
}

void History::add_wishes(core::Request& request) {
  request.priority = pick(-3, 3);
  if (chance(20)) {
    request.logprobs.emplace();
    request.logprobs->top = pick(0, 3);
    if (chance(50)) request.logprobs->prompt_from = pick(0, 30);
  }
  if (chance(15))
    request.hidden = one_of({core::HiddenWish::kLastOfPrompt, core::HiddenWish::kPrompt, core::HiddenWish::kAll});
  if (chance(10) && (request.logprobs || request.hidden != core::HiddenWish::kNone)) {
    request.sampling.max_new_tokens = 0;
    request.sampling.min_new_tokens = 0;
  }
  if (chance(20)) {
    request.guide = guides_(request.id);
    // A guide may leave nothing but the end, and that must be allowed then.
    request.sampling.min_new_tokens = 0;
  }
}

// n > 1: other answers to the same prompt.
void History::add_choices(core::Request choice) {
  choice.same_prompt = choice.id;
  for (std::int32_t n = pick(1, 3); n > 0; --n) {
    choice.id = core::RequestId{requests_.size() + 1};
    ++choice.sampling.seed;
    if (choice.guide) choice.guide = guides_(choice.id);
    requests_.push_back(choice);
  }
}

HistoryReport History::run() {
  constexpr std::int32_t kMostEvents = 200'000;
  std::int32_t events = 0;
  while (submitted_ < requests_.size() || !brain_.idle()) {
    act();
    collect();
    poison_free_pages();
    if (++events > kMostEvents) {
      fail("the history does not end");
      break;
    }
  }
  judge();
  report_.plans_hash = model_.plans_hash();
  report_.requests = static_cast<std::int32_t>(requests_.size());
  const Snapshot snapshot = brain_.snapshot();
  report_.steps = snapshot.steps;
  report_.retractions = snapshot.retractions;
  report_.evicted_tokens = snapshot.evicted_tokens;
  return report_;
}

// One event: traffic, an abort, a plan, or a computed step; plans and results in any order the contract allows.
void History::act() {
  clock_.advance_us(pick(0, 500));
  if (submitted_ < requests_.size() && chance(15)) return brain_.submit(requests_[submitted_++]);
  if (submitted_ > 0 && chance(abort_percent_)) {
    const auto victim = static_cast<std::size_t>(pick(0, static_cast<std::int32_t>(submitted_) - 1));
    return brain_.abort(requests_[victim].id, {StatusCode::kAborted, "the client left"});
  }
  if (chance(1)) return brain_.flush_cache([](Status) {});
  if (chance(1)) return swap_draft();
  if (chance(55)) return plan();
  if (chance(failure_percent_)) model_.fail_next(internal_error("injected"));
  model_.compute_one();
}

// Another draft, one that was there before, or none.
void History::swap_draft() {
  core::DraftProfile profile;
  profile.version = core::DraftVersion{static_cast<std::uint32_t>(pick(0, 3))};
  profile.block_size = pick(2, 9);
  brain_.use_draft(profile, [this] { ++report_.swaps; });
}

void History::plan() {
  if (auto plan = brain_.next_plan()) model_.submit(std::move(plan));
}

void History::collect() {
  brain_.publish_metrics();
  for (core::OutputDelta& delta : brain_.take_deltas()) {
    Answer& answer = answers_[delta.request];
    if (answer.finishes > 0) fail("news after the finish");
    answer.ids.insert(answer.ids.end(), delta.token_ids.begin(), delta.token_ids.end());
    answer.text += delta.text;
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    append(answer.logprobs, delta.logprobs);
    append(answer.prompt_logprobs, delta.prompt_logprobs);
    append(answer.hidden, delta.hidden);
    answer.completion_tokens = delta.completion_tokens;
    answer.speculation = delta.speculation;
    if (answer.completion_tokens != static_cast<std::int32_t>(answer.ids.size()))
      fail("completion_tokens is not the number of ids");
    if (answer.cached_tokens >= 0 && delta.cached_tokens != answer.cached_tokens && !answer.ids.empty() &&
        answer.ids.size() != delta.token_ids.size())
      fail("cached_tokens changed under way");
    answer.cached_tokens = delta.cached_tokens;
    if (delta.finish) {
      ++answer.finishes;
      answer.finish = std::move(delta.finish);
    }
  }
}

void History::poison_free_pages() {
  for (std::int32_t p = 0; p < limits_.total_pages; ++p)
    if (brain_.pool().state(core::PageId{p}) == kv::PageState::kFree) model_.poison(core::PageId{p});
}

void History::judge() {
  if (Status audit = brain_.audit(); !audit.ok()) fail("audit: " + audit.to_string());
  for (const core::Request& request : requests_) judge(request, answers_[request.id]);
  count_cut_families();
  const Snapshot before = brain_.snapshot();
  if (before.leased_pages != 0) fail("pages are leased though nothing runs");
  brain_.flush_cache([](Status) {});
  if (brain_.snapshot().free_pages != limits_.total_pages) fail("pages are lost");
}

void History::judge(const core::Request& request, const Answer& answer) {
  const std::string who = "request " + std::to_string(core::value(request.id)) + ": ";
  if (answer.finishes != 1) return fail(who + std::to_string(answer.finishes) + " finishes");
  if (answer.cached_tokens < 0 || answer.cached_tokens >= static_cast<std::int32_t>(request.prompt.size()))
    fail(who + "cached_tokens out of range");
  const FinishReason reason = answer.finish->reason;
  report_.cached_tokens += answer.cached_tokens;
  if (answer.finish->status.code() == StatusCode::kPayloadTooLarge) {
    if (brain_.check_fits(static_cast<std::int32_t>(request.prompt.size())).ok()) fail(who + "refused though it fits");
    return;
  }
  const Answer expected = solo(request);
  if (reason == FinishReason::kAbort || reason == FinishReason::kError) {
    ++(reason == FinishReason::kAbort ? report_.aborted : report_.failed);
    const bool prefix = answer.ids.size() <= expected.ids.size() &&
                        std::equal(answer.ids.begin(), answer.ids.end(), expected.ids.begin());
    if (!prefix) fail(who + "what came before the end differs from the solo run");
    return;
  }
  report_.verified_drafts += answer.speculation.drafts;
  report_.accepted_drafts += answer.speculation.accepted;
  if (options_.speculative_algorithm == "NGRAM") report_.accepted_repeats += answer.speculation.accepted;
  if (answer.ids != expected.ids) return fail(who + "tokens differ from the solo run");
  if (answer.text != expected.text) return fail(who + "text '" + answer.text + "' for '" + expected.text + "'");
  judge_wishes(who, answer, expected);
  if (request.guide) report_.guided_tokens += static_cast<std::int32_t>(answer.ids.size());
  if (reason != expected.finish->reason || answer.finish->matched != expected.finish->matched)
    return fail(who + "ended for another reason");
  if (std::holds_alternative<std::string>(answer.finish->matched)) ++report_.stopped_by_string;
}

void History::count_cut_families() {
  std::set<core::RequestId> cut, answered;
  for (const core::Request& request : requests_) {
    const auto& finish = answers_[request.id].finish;
    if (!finish) continue;
    const core::RequestId family = request.same_prompt.value_or(request.id);
    if (finish->reason == FinishReason::kAbort) cut.insert(family);
    if (finish->reason == FinishReason::kStop || finish->reason == FinishReason::kLength) answered.insert(family);
  }
  for (const core::RequestId family : cut) report_.families_cut += answered.contains(family) ? 1 : 0;
}

void History::judge_wishes(const std::string& who, const Answer& answer, const Answer& expected) {
  const auto same = [](const std::vector<core::TokenLogprob>& a, const std::vector<core::TokenLogprob>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
      return x.token == y.token && x.logprob == y.logprob && x.top.size() == y.top.size() &&
             std::equal(x.top.begin(), x.top.end(), y.top.begin(),
                        [](const auto& p, const auto& q) { return p.token == q.token && p.logprob == q.logprob; });
    });
  };
  if (!same(answer.logprobs, expected.logprobs)) fail(who + "log probabilities differ from the solo run");
  if (!same(answer.prompt_logprobs, expected.prompt_logprobs)) fail(who + "those of the prompt differ");
  if (answer.hidden != expected.hidden) fail(who + "hidden states differ from the solo run");
  report_.logprobs += static_cast<std::int32_t>(answer.logprobs.size() + answer.prompt_logprobs.size());
  report_.hidden_rows += static_cast<std::int32_t>(answer.hidden.size());
}

// The whole prompt, cold and alone, through the finish rule in one piece.
Answer History::solo(const core::Request& request) const {
  const auto prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  const std::int32_t room =
      max_total_tokens(layout_, limits_.context_length_tokens, limits_.total_pages) - prompt_tokens;
  const StopRules rules = make_stop_rules(request.sampling, limits_.eos_token_ids, room);
  RequestState fresh(request, {}, rules, tokenizer_);
  ScriptedReference model(request.sampling, limits_.eos_token_ids, kVocab, request.prompt,
                          request.guide ? guides_(request.id) : nullptr);
  std::vector<Token> tokens;
  for (std::int32_t i = 0; i < rules.max_new_tokens; ++i) tokens.push_back(model.next());
  Answer answer;
  if (tokens.empty()) {
    answer.finish = core::Finish{FinishReason::kLength, {}, {}};
  } else {
    const FinishVerdict verdict = finish_rule(rules, tokens, 0, fresh.text_decoder(), answer.text);
    answer.ids.assign(tokens.begin(), tokens.begin() + verdict.cut);
    answer.finish = verdict.finish;
  }
  solo_wishes(request, model, answer);
  return answer;
}

void History::solo_wishes(const core::Request& request, const ScriptedReference& model, Answer& answer) {
  const auto prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  const auto produced = static_cast<std::int32_t>(answer.ids.size());
  if (request.logprobs) {
    for (std::int32_t row = request.logprobs->prompt_from; row < prompt_tokens - 1; ++row)
      answer.prompt_logprobs.push_back(
          model.logprob(row, request.prompt[static_cast<std::size_t>(row) + 1], request.logprobs->top));
    for (std::int32_t i = 0; i < produced; ++i)
      answer.logprobs.push_back(
          model.logprob(prompt_tokens - 1 + i, answer.ids[static_cast<std::size_t>(i)], request.logprobs->top));
  }
  std::int32_t first = 0, end = prompt_tokens;
  if (request.hidden == core::HiddenWish::kNone) return;
  if (request.hidden == core::HiddenWish::kLastOfPrompt) first = prompt_tokens - 1;
  if (request.hidden == core::HiddenWish::kAll) end = prompt_tokens - 1 + std::max(produced, 1);
  for (std::int32_t row = first; row < end; ++row) answer.hidden.push_back(model.hidden(row));
}

}  // namespace

HistoryReport run_history(std::uint64_t seed, const text::Tokenizer* tokenizer, Guides guides) {
  return History(seed, tokenizer, std::move(guides)).run();
}

void HistoryReport::add(const HistoryReport& other) {
  steps += other.steps;
  retractions += other.retractions;
  evicted_tokens += other.evicted_tokens;
  requests += other.requests;
  aborted += other.aborted;
  failed += other.failed;
  cached_tokens += other.cached_tokens;
  stopped_by_string += other.stopped_by_string;
  logprobs += other.logprobs;
  hidden_rows += other.hidden_rows;
  guided_tokens += other.guided_tokens;
  families_cut += other.families_cut;
  verified_drafts += other.verified_drafts;
  accepted_drafts += other.accepted_drafts;
  accepted_repeats += other.accepted_repeats;
  swaps += other.swaps;
}

}  // namespace levada::sched::sim
