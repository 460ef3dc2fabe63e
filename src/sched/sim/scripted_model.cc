#include "sched/sim/scripted_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace levada::sched::sim {
namespace {

constexpr std::uint64_t kStart = 0x1234567;
constexpr std::uint64_t kPoison = 0xDEADDEADDEADDEAD;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15ull + b + 0x632BE59BD9B4E019ull;
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  return x * 0x94D049BB133111EBull;
}

std::uint64_t fold_slot(std::uint64_t context, std::uint64_t deep, std::int32_t token, std::int32_t position) {
  return mix(mix(context, deep), (static_cast<std::uint64_t>(static_cast<std::uint32_t>(token)) << 32) |
                                     static_cast<std::uint32_t>(position));
}

// The hash a token is stored under: its whole context and itself.
std::uint64_t deep_of(std::uint64_t context, core::Token token) {
  return mix(context, static_cast<std::uint64_t>(token));
}

struct Constraints {
  std::span<const core::Token> history, banned, bias_ids;
  std::span<const std::uint32_t> mask;

  bool allows(core::Token token) const {
    const auto id = static_cast<std::size_t>(token);
    return (mask.empty() || (mask[id / 32] >> id % 32 & 1) != 0) &&
           std::find(banned.begin(), banned.end(), token) == banned.end();
  }
};

// `last`: the token that the context ends with. Every fourth seed forgets all but that one, so that its text soon repeats.
core::Token choose(std::uint64_t context, core::Token last, const core::SampleRow& row, const Constraints& constraints,
                   std::int32_t vocab_size) {
  const bool forgetful = row.seed % 4 == 0 && constraints.history.empty();
  std::uint64_t h = forgetful ? mix(kStart, static_cast<std::uint64_t>(last % 16)) : context;
  const std::span<const core::Token> history = constraints.history;
  for (const core::Token id : constraints.bias_ids) h = mix(h, static_cast<std::uint64_t>(id));
  if (row.temperature != 0.0f && row.top_k != 1 && !forgetful)
    h = mix(mix(h, row.seed), static_cast<std::uint64_t>(row.position));
  for (std::size_t i = 0; i < history.size(); ++i) {
    const bool output = static_cast<std::int32_t>(i) >= row.history_prompt_tokens;
    h = mix(h, static_cast<std::uint64_t>(history[i]) * 2 + (output ? 1 : 0));
  }
  for (;; h = mix(h, 1)) {
    const auto token = static_cast<core::Token>((h >> 20) % static_cast<std::uint64_t>(vocab_size));
    if (constraints.allows(token)) return token;
  }
}

float hidden_of(std::uint64_t context) { return static_cast<float>(context >> 40); }

core::TokenLogprob logprob_of(std::uint64_t context, core::Token token, std::int32_t top) {
  const auto of = [&](core::Token id) {
    return -static_cast<float>(mix(context, static_cast<std::uint64_t>(id)) >> 40);
  };
  core::TokenLogprob logprob{token, of(token), {}};
  for (core::Token id = 0; id < top; ++id) logprob.top.push_back({id, of(id)});
  return logprob;
}

template <class T>
void hash_range(std::uint64_t& hash, const std::vector<T>& values) {
  hash = mix(hash, values.size());
  for (const T& value : values) hash = mix(hash, static_cast<std::uint64_t>(value));
}

std::uint64_t hash_plan(std::uint64_t hash, const core::StepPlan& plan) {
  hash = mix(hash, core::value(plan.step));
  hash_range(hash, plan.tokens);
  hash_range(hash, plan.positions);
  hash_range(hash, plan.block_tables);
  hash_range(hash, plan.history);
  hash_range(hash, plan.banned);
  hash_range(hash, plan.masks);
  hash = mix(hash, core::value(plan.draft));
  for (const core::PlanSlice& slice : plan.slices) {
    hash = mix(hash, core::value(slice.range.request));
    hash = mix(mix(hash, static_cast<std::uint64_t>(slice.range.first)), static_cast<std::uint64_t>(slice.range.count));
    hash = mix(mix(hash, static_cast<std::uint64_t>(slice.drafts)), static_cast<std::uint64_t>(slice.propose));
    hash = mix(mix(hash, static_cast<std::uint64_t>(slice.draft_from)), static_cast<std::uint64_t>(slice.next_token));
  }
  for (const core::FutureToken& future : plan.future_tokens)
    hash = mix(mix(hash, static_cast<std::uint64_t>(future.row)), static_cast<std::uint64_t>(future.previous_sample));
  return hash;
}

}  // namespace

ScriptedModel::ScriptedModel(std::int32_t total_pages, std::int32_t page_size_tokens, std::int32_t vocab_size,
                             bool of_next_token)
    : page_size_(page_size_tokens),
      vocab_size_(vocab_size),
      of_next_token_(of_next_token),
      slots_(static_cast<std::size_t>(total_pages) * static_cast<std::size_t>(page_size_tokens),
             Slot{kPoison, -1, -1}) {}

void ScriptedModel::submit(std::unique_ptr<core::StepPlan> plan) {
  check_plan(*plan);
  plans_hash_ = hash_plan(plans_hash_, *plan);
  plans_.push_back(std::move(plan));
  LEVADA_CHECK(plans_.size() <= 2, "one step of lookahead");
}

bool ScriptedModel::compute_one() {
  if (plans_.empty()) return false;
  const std::unique_ptr<core::StepPlan> plan = std::move(plans_.front());
  plans_.pop_front();
  resolve_future_tokens(*plan);
  core::StepResult result = execute(*plan);
  previous_samples_ = result.sampled;
  if (!failure_.ok()) {
    for (const core::PlanSlice& slice : plan->slices)
      for (std::int32_t p = slice.range.first; p < slice.range.end(); ++p) slot(*plan, slice, p) = {kPoison, -1, -1};
    result.status = lost_ ? failure_ : std::exchange(failure_, {});
    result.executor_lost = lost_;
    result.sampled.clear();
    result.proposed.clear();
  }
  sink_(std::move(result));
  return true;
}

void ScriptedModel::poison(core::PageId page) {
  const auto first = static_cast<std::size_t>(core::index(page)) * static_cast<std::size_t>(page_size_);
  std::fill_n(slots_.begin() + static_cast<std::ptrdiff_t>(first), page_size_, Slot{kPoison, -1, -1});
}

ScriptedModel::Slot& ScriptedModel::slot(const core::StepPlan& plan, const core::PlanSlice& slice,
                                         std::int32_t position) {
  const std::int32_t page =
      plan.block_tables[static_cast<std::size_t>(slice.block_table_first + position / page_size_)];
  return slots_[static_cast<std::size_t>(page) * static_cast<std::size_t>(page_size_) +
                static_cast<std::size_t>(position % page_size_)];
}

void ScriptedModel::check_plan(const core::StepPlan& plan) const {
  std::int32_t row = 0, samples = 0;
  std::map<std::int32_t, std::pair<std::int32_t, bool>> users;  // page -> uses, written
  LEVADA_CHECK(!plan.slices.empty(), "an empty plan is not submitted");
  for (const core::PlanSlice& slice : plan.slices) {
    LEVADA_CHECK(slice.range.count > 0 && slice.first_row == row, "slices lie one after the other");
    const std::int32_t block = slice.propose > 0 ? 1 + slice.propose : 0;
    LEVADA_CHECK(slice.range.end() + block <= slice.block_table_pages * page_size_, "every row has its page");
    LEVADA_CHECK(slice.drafts >= 0 && slice.drafts < slice.range.count, "drafts follow a known token");
    LEVADA_CHECK(slice.propose == 0 || (plan.draft != core::kNoDraft && slice.sample_row >= 0),
                 "who proposes, and what");
    LEVADA_CHECK(slice.draft_from >= 0 && slice.draft_from <= slice.range.first, "the step's own rows are readable");
    for (std::int32_t i = 0; i < slice.range.count; ++i, ++row)
      LEVADA_CHECK(plan.positions.at(static_cast<std::size_t>(row)) == slice.range.first + i,
                   "positions are the range");
    for (std::int32_t p = 0; p < slice.block_table_pages; ++p) {
      const std::int32_t page = plan.block_tables.at(static_cast<std::size_t>(slice.block_table_first + p));
      LEVADA_CHECK(page >= 0 && static_cast<std::size_t>(page) * static_cast<std::size_t>(page_size_) < slots_.size(),
                   "page ids lie in the pool");
      auto& [uses, written] = users[page];
      ++uses;
      written = written || (p + 1) * page_size_ > slice.range.first;
      LEVADA_CHECK(!written || uses == 1, "a page that is written has one user");
    }
    if (slice.sample_row < 0) continue;
    LEVADA_CHECK(slice.sample_row == samples, "samples in the order of slices");
    for (std::int32_t i = slice.drafts; i >= 0; --i) {
      const core::SampleRow& sample = plan.samples.at(static_cast<std::size_t>(samples++));
      LEVADA_CHECK(sample.row == row - 1 - i && sample.position == slice.range.end() - i, "the last rows are sampled");
    }
  }
  LEVADA_CHECK(static_cast<std::size_t>(row) == plan.tokens.size() && plan.tokens.size() == plan.positions.size(),
               "count == rows");
  LEVADA_CHECK(static_cast<std::size_t>(samples) == plan.samples.size(), "every sample has its slice");
}

void ScriptedModel::resolve_future_tokens(core::StepPlan& plan) const {
  for (const core::FutureToken& future : plan.future_tokens) {
    // After a failed step there is no token; what is computed from it is dropped.
    const auto sample = static_cast<std::size_t>(future.previous_sample);
    plan.tokens[static_cast<std::size_t>(future.row)] =
        sample < previous_samples_.size() ? previous_samples_[sample] : 0;
  }
}

ScriptedModel::End ScriptedModel::sample_slice(const core::StepPlan& plan, const core::PlanSlice& slice,
                                               std::span<const std::uint64_t> contexts,
                                               core::StepResult& result) const {
  const auto part = [](const auto& all, std::int32_t first, std::int64_t count) {
    return std::span(all).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  };
  for (std::int32_t i = 0; i <= slice.drafts; ++i) {
    const core::SampleRow& row = plan.samples[static_cast<std::size_t>(slice.sample_row + i)];
    const auto known = part(plan.history, row.history_first, row.history_tokens);
    std::vector<core::Token> history(known.begin(), known.end());
    if (row.append_input_to_history) history.push_back(plan.tokens[static_cast<std::size_t>(row.row)]);
    Constraints constraints{history,
                            part(plan.banned, row.banned_first, row.banned_count),
                            part(plan.bias_ids, row.bias_first, row.bias_count),
                            {}};
    if (row.mask_first >= 0) constraints.mask = part(plan.masks, row.mask_first, core::mask_words(vocab_size_));
    const std::uint64_t context = contexts[static_cast<std::size_t>(row.row)];
    const core::Token last = plan.tokens[static_cast<std::size_t>(row.row)];
    result.sampled.push_back(choose(context, last, row, constraints, vocab_size_));
    result.sampled_logprobs.push_back(logprob_of(context, result.sampled.back(), std::max(row.top_logprobs, 0)));
  }
  const auto sampled = std::span(result.sampled).last(static_cast<std::size_t>(1 + slice.drafts));
  const std::int32_t last = slice.first_row + slice.range.count - 1;
  const auto drafts = part(plan.tokens, last + 1 - slice.drafts, slice.drafts);
  const std::int32_t accepted = core::accepted_drafts(sampled, drafts);
  const std::int32_t rejected = slice.drafts - accepted;
  return {contexts[static_cast<std::size_t>(last - rejected)], slice.range.end() - 1 - rejected,
          sampled[static_cast<std::size_t>(accepted)]};
}

// Guesses what plain sampling without constraints would choose, wrong now and then.
void ScriptedModel::propose(const core::StepPlan& plan, const core::PlanSlice& slice, const End& end,
                            core::StepResult& result) {
  for (std::int32_t p = slice.draft_from; p <= end.position; ++p) {
    const Slot& read = slot(plan, slice, p);
    if (read.position != p) break;  // of a step that failed: what follows is nobody's
    const bool last = p == end.position;
    if (!last && slot(plan, slice, p + 1).position != p + 1) break;
    const core::Token next = last ? end.next : slot(plan, slice, p + 1).token;
    LEVADA_CHECK(read.draft == plan.draft && read.draft_deep == draft_deep_of(read.deep, next),
                 "a draft reads what it wrote itself");
  }
  core::SampleRow row = plan.samples[static_cast<std::size_t>(slice.sample_row)];
  std::uint64_t context = end.context;
  core::Token token = end.next;
  for (std::int32_t i = 0; i <= slice.propose; ++i) {
    const std::int32_t position = end.position + 1 + i;
    slot(plan, slice, position).draft = core::kNoDraft;  // the block's own numbers
    if (i == slice.propose) break;
    context = fold_slot(context, deep_of(context, token), token, position);
    row.position = position + 1;
    token = choose(context, token, row, {}, vocab_size_);
    const bool wrong = mix(context, core::value(plan.step)) % 8 == 0;
    result.proposed.push_back(wrong ? (token + 1) % vocab_size_ : token);
  }
}

std::uint64_t ScriptedModel::draft_deep_of(std::uint64_t deep, core::Token next) const {
  return of_next_token_ ? mix(deep, static_cast<std::uint64_t>(next) + 1) : deep;
}

void ScriptedModel::write_draft_planes(const core::StepPlan& plan, const core::PlanSlice& slice, const End& end) {
  for (std::int32_t p = slice.range.first; p <= end.position; ++p) {
    const core::Token next = p == end.position
                                 ? end.next
                                 : plan.tokens[static_cast<std::size_t>(slice.first_row + p + 1 - slice.range.first)];
    Slot& written = slot(plan, slice, p);
    written.draft = plan.draft;
    written.draft_deep = draft_deep_of(written.deep, next);
  }
}

core::StepResult ScriptedModel::execute(const core::StepPlan& plan) {
  core::StepResult result;
  result.step = plan.step;
  std::vector<std::uint64_t> contexts;  // after each row
  for (const core::PlanSlice& slice : plan.slices) {
    std::uint64_t context = kStart;
    for (std::int32_t p = 0; p < slice.range.first; ++p) {
      const Slot& s = slot(plan, slice, p);
      context = fold_slot(context, s.deep, s.token, s.position);
    }
    for (std::int32_t p = slice.range.first; p < slice.range.end(); ++p) {
      const core::Token token = plan.tokens[static_cast<std::size_t>(slice.first_row + p - slice.range.first)];
      const Slot written{deep_of(context, token), token, p};
      slot(plan, slice, p) = written;
      context = fold_slot(context, written.deep, written.token, written.position);
      contexts.push_back(context);
    }
    const End end = slice.sample_row < 0 ? End{context, slice.range.end() - 1, slice.next_token}
                                         : sample_slice(plan, slice, contexts, result);
    write_draft_planes(plan, slice, end);
    if (slice.propose > 0) propose(plan, slice, end, result);
  }
  for (const core::ScoreRow& score : plan.scores)
    result.scored.push_back(
        logprob_of(contexts.at(static_cast<std::size_t>(score.row)), score.next, score.top_logprobs));
  for (const core::HiddenRows& rows : plan.hidden) {
    result.hidden.emplace_back();
    for (std::int32_t row = rows.first_row; row < rows.first_row + rows.count; ++row)
      result.hidden.back().push_back(hidden_of(contexts.at(static_cast<std::size_t>(row))));
  }
  return result;
}

ScriptedReference::ScriptedReference(const core::SamplingParams& sampling, std::span<const core::Token> eos,
                                     std::int32_t vocab_size, std::vector<core::Token> prompt,
                                     std::shared_ptr<core::TokenGuide> guide)
    : sampling_(sampling),
      banned_(sampling.stop_token_ids),
      vocab_size_(vocab_size),
      prompt_tokens_(static_cast<std::int32_t>(prompt.size())),
      guide_(std::move(guide)),
      context_(kStart) {
  if (!sampling.ignore_eos) banned_.insert(banned_.end(), eos.begin(), eos.end());
  for (const core::Token token : prompt) feed(token);
}

core::Token ScriptedReference::next() {
  core::SampleRow row;
  row.temperature = sampling_.temperature;
  row.top_k = sampling_.top_k;
  row.seed = sampling_.seed;
  row.position = static_cast<std::int32_t>(tokens_.size());
  row.history_prompt_tokens = prompt_tokens_;
  const bool ban = row.position - prompt_tokens_ < sampling_.min_new_tokens;
  Constraints constraints;
  if (sampling_.penalised()) constraints.history = tokens_;
  if (ban) constraints.banned = banned_;
  std::vector<core::Token> bias_ids;
  for (const core::LogitBias& bias : sampling_.logit_bias) bias_ids.push_back(bias.token);
  constraints.bias_ids = bias_ids;
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(core::mask_words(vocab_size_)), ~std::uint32_t{0});
  if (guide_ && guide_->allowed(mask)) constraints.mask = mask;
  const core::Token token = choose(context_, tokens_.back(), row, constraints, vocab_size_);
  feed(token);
  if (guide_) LEVADA_CHECK(guide_->accept(token).ok(), "what was allowed is accepted");
  return token;
}

void ScriptedReference::feed(core::Token token) {
  const auto position = static_cast<std::int32_t>(tokens_.size());
  context_ = fold_slot(context_, deep_of(context_, token), token, position);
  tokens_.push_back(token);
  contexts_.push_back(context_);
}

float ScriptedReference::hidden(std::int32_t row) const {
  return hidden_of(contexts_.at(static_cast<std::size_t>(row)));
}

core::TokenLogprob ScriptedReference::logprob(std::int32_t row, core::Token next, std::int32_t top) const {
  return logprob_of(contexts_.at(static_cast<std::size_t>(row)), next, top);
}

bool ScriptedGuide::allowed(std::span<std::uint32_t> words) {
  if (accepted_ % 5 == 4) return false;
  for (std::size_t id = static_cast<std::size_t>(accepted_ % 3); id < words.size() * 32; id += 3)
    words[id / 32] &= ~(1u << id % 32);
  return true;
}

Status ScriptedGuide::accept(core::Token token) {
  if (accepted_ % 5 != 4 && token % 3 == accepted_ % 3) return internal_error("the token was not allowed");
  ++accepted_;
  return {};
}

}  // namespace levada::sched::sim
