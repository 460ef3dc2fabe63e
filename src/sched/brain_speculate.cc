// Speculation: whose drafts a step verifies, how many it asks for, and what the draft planes hold.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "sched/brain.h"

namespace levada::sched {
namespace {

constexpr std::int32_t kNgramBlock = 8;     // tokens of a block, the newest known one included
constexpr std::int32_t kNgramStreak = 2;    // guesses that must have come true before steps are spent on them
constexpr std::size_t kNgramRequests = 64;  // beyond, a step is no longer bound by reading weights: nobody is watched
constexpr std::int32_t kLearnedPerStep = 2048;  // tokens of a text; a long prompt is learned over several steps

}  // namespace

void Brain::use_draft(core::DraftProfile profile, std::function<void()> done) {
  draft_ = std::move(profile);
  swaps_.push_back(std::move(done));
  finish_swaps();
}

void Brain::finish_swaps() {
  const auto names_another = [&](const Flight& flight) {
    return flight.draft != core::kNoDraft && flight.draft != draft_.version;
  };
  if (swaps_.empty() || std::any_of(flights_.begin(), flights_.end(), names_another)) return;
  for (auto& done : std::exchange(swaps_, {})) done();
}

bool Brain::drafts_by_model() const {
  return draft_.version != core::kNoDraft && options_.speculative_algorithm != "none" &&
         options_.speculative_algorithm != "NGRAM";
}

bool Brain::drafts_by_ngrams() const {
  return options_.speculative_algorithm == "auto" || options_.speculative_algorithm == "NGRAM";
}

std::string Brain::speculation_note() const {
  const auto blocks = [&](std::int32_t own) { return "blocks of at most " + std::to_string(most_drafts(own) + 1); };
  const std::string repeats = "n-grams where the text repeats, " + blocks(kNgramBlock);
  if (drafts_by_model()) {
    const std::string model = draft_.algorithm + ": " + draft_.name + ", " + blocks(draft_.block_size);
    return drafts_by_ngrams() ? model + "; " + repeats : model;
  }
  if (drafts_by_ngrams()) return "NGRAM: " + repeats + (draft_.version == core::kNoDraft ? "; no draft is loaded" : "");
  const std::string& algorithm = options_.speculative_algorithm;
  if (algorithm == "none") return "none: switched off";
  return "none: " + algorithm + " is asked for and no draft is loaded";
}

// Drafts of one step, at most: the block's, without the token that it continues. `own`: the drafter's block.
std::int32_t Brain::most_drafts(std::int32_t own) const {
  const auto asked = static_cast<std::int32_t>(options_.speculative_num_draft_tokens);
  return (asked > 0 ? std::min(asked, own) : own) - 1;
}

// What the pace thinks worth it; a request that measures drafts has all of them verified.
std::int32_t Brain::worth_verifying(const RequestState& state, const spec::Track& track, std::int32_t most) const {
  if (state.request.sampling.spec_full_blocks) return std::max(most, 0);
  return pace_.choose(track, most, static_cast<std::int32_t>(running_.size()));
}

std::int32_t Brain::wished_of_model(const RequestState& state) const {
  return drafts_by_model() ? worth_verifying(state, state.track, most_drafts(draft_.block_size)) : 0;
}

bool Brain::prepare_drafts(RequestState& state) {
  state.propose = 0;
  const bool repeats = drafts_by_ngrams() && state.ngram_streak >= kNgramStreak;
  const std::int32_t repeated = repeats ? worth_verifying(state, state.ngram_track, most_drafts(kNgramBlock)) : 0;
  const std::int32_t wished = wished_of_model(state);
  if (state.pending_samples > 0) return repeated == 0 && wished == 0;  // drafts continue a known token
  guess_.clear();
  if (repeated > 0) state.ngram->propose(state.tokens, repeated, guess_);
  state.drafts_repeat = !guess_.empty();
  if (state.drafts_repeat) state.drafts = guess_;  // they cost no step of a model, and are right more often
  cut_drafts(state);
  if (!state.drafts_repeat) state.propose = std::clamp(wished, 0, proposals_with_room(state, state.planned_tokens + 1));
  return true;
}

// What lies behind the answer's end, by length or by a stop token, needs no verification.
void Brain::cut_drafts(RequestState& state) const {
  std::vector<core::Token>& drafts = state.drafts;
  const auto most = static_cast<std::size_t>(std::max(state.new_tokens_left() - 1, 0));
  if (drafts.size() > most) drafts.resize(most);
  const std::vector<core::Token>& stops = state.stop_rules.stop_ids;
  const auto stop = std::find_if(drafts.begin(), drafts.end(), [&](core::Token token) {
    return std::binary_search(stops.begin(), stops.end(), token);
  });
  if (stop != drafts.end()) drafts.erase(stop + 1, drafts.end());
}

// Of a slice that ends at `end`, its drafts left out: context and pool bound the block's positions, and an answer that is
// over with the next two tokens needs none.
std::int32_t Brain::proposals_with_room(const RequestState& state, std::int32_t end) const {
  const std::int32_t latest = end + static_cast<std::int32_t>(state.drafts.size());
  const std::int32_t total = max_total_tokens(layout_, limits_.context_length_tokens, limits_.total_pages);
  return std::max(std::min(total - latest - 1, state.new_tokens_left() - 2), 0);
}

void Brain::obtain_draft_pages(RequestState& state, std::int32_t end) {
  if (!state.speculates()) return;
  const std::int32_t block = state.propose > 0 ? 1 + state.propose : 0;
  const std::int64_t tokens = std::int64_t{end} + static_cast<std::int32_t>(state.drafts.size()) + block;
  const auto missing = static_cast<std::int32_t>(pages_to_come(layout_, tokens, state.pages.size()));
  if (missing == 0) return;
  if (auto pages = allocate(missing)) {
    state.pages.grow(std::move(*pages));
  } else {
    state.drafts.clear();
    state.propose = 0;
  }
}

// Oldest first, as everywhere.
void Brain::spend_draft_budget(RequestState& state) {
  const auto drafts = static_cast<std::int32_t>(state.drafts.size());
  if (drafts > drafts_left_) state.drafts.resize(static_cast<std::size_t>(drafts_left_));
  state.propose = std::min(state.propose, proposals_left_);
  drafts_left_ -= static_cast<std::int32_t>(state.drafts.size());
  proposals_left_ -= state.propose;
}

// The first proposal follows the prompt's last chunk.
void Brain::prepare_first_proposal(RequestState& state, std::int32_t end) {
  state.propose = 0;
  if (end < state.input_tokens || state.new_tokens_left() < 1) return;
  state.propose = std::clamp(wished_of_model(state), 0, proposals_with_room(state, end));
  obtain_draft_pages(state, end);
  spend_draft_budget(state);
}

void Brain::note_draft_planes(RequestState& state) {
  if (!has_draft_planes_ || state.draft_version == draft_.version) return;
  state.draft_version = draft_.version;
  state.draft_from = draft_ledger_.readable_from(state.pages.table(), state.planned_tokens, draft_.version);
}

void Brain::note_draft_written(const RequestState& state, std::int32_t first) {
  if (has_draft_planes_) draft_ledger_.on_written(state.pages.table(), first, state.planned_tokens, draft_.version);
}

// `accepted`: of the row's drafts.
void Brain::judge_drafts(RequestState& state, const FlightRow& row, std::int32_t accepted) {
  if (!drafts_by_model() && !drafts_by_ngrams()) return;
  ++state.speculation.steps;
  state.speculation.drafts += row.drafts;
  state.speculation.accepted += accepted;
  ++speculation_.steps;
  speculation_.drafts += static_cast<std::uint64_t>(row.drafts);
  speculation_.accepted += static_cast<std::uint64_t>(accepted);
  acceptance_.add(row.drafts, accepted);
  if (row.drafts > 0) {
    (state.drafts_repeat ? state.ngram_track : state.track).on_verified(row.drafts, accepted);
    // What a new request may hope for: of the drafter that it will begin with, and not of one that is only measured.
    if (state.drafts_repeat != drafts_by_model() && !state.request.sampling.spec_full_blocks)
      pace_.on_verified(row.drafts, accepted);
    if (accepted == 0) state.ngram_streak = 0;
  } else {
    if (drafts_by_model()) state.track.on_plain_step();
    if (state.ngram_streak >= kNgramStreak) state.ngram_track.on_plain_step();
  }
}

// For the request that goes on.
void Brain::take_proposals(RequestState& state, const FlightRow& row, const core::StepResult& result) {
  const auto proposed =
      std::span(result.proposed)
          .subspan(static_cast<std::size_t>(row.proposed_first), static_cast<std::size_t>(row.proposed));
  const bool usable = std::all_of(proposed.begin(), proposed.end(),
                                  [&](core::Token token) { return token >= 0 && token < limits_.vocab_size; });
  if (usable && !state.retract_pending) state.drafts.assign(proposed.begin(), proposed.end());
}

// A text that repeats is noticed while it is decoded plainly: by guesses that nobody pays for.
void Brain::learn(RequestState& state, std::span<const core::Token> kept) {
  if (!drafts_by_ngrams() || state.prompt_only()) return;
  if (running_.size() > kNgramRequests) {
    state.ngram_guess.reset();
    state.ngram_streak = 0;
    return;
  }
  if (state.ngram_guess && !kept.empty())
    state.ngram_streak = *state.ngram_guess == kept.front() ? state.ngram_streak + 1 : 0;
  state.ngram_guess.reset();
  if (!state.ngram) state.ngram.emplace(spec::NgramOptions{.min_match = 2, .max_match = 5});
  const std::size_t known = state.tokens.size();
  const std::size_t learned = std::min(known, state.ngram->learned() + kLearnedPerStep);
  state.ngram->extend(std::span(state.tokens).first(learned));
  if (learned < known) return;
  guess_.clear();
  state.ngram->propose(state.tokens, 1, guess_);
  if (!guess_.empty()) state.ngram_guess = guess_.front();
}

}  // namespace levada::sched
