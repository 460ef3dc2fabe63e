// What: Flywheel, training without end on what a server serves: rounds of a finite run each, measured and promoted.
// Owner: `levada flywheel run`, a role of `levada up`.
// Thread: the caller's; blocks until the last round, a stop or a failure that no round mends.
// Invariant: whatever it knows is in files of its folder, written whole, so that it may be killed at any moment and goes on
// with the round it was in; the server's draft is the promoted one between rounds; folders of old rounds go.
//
// A round:  samples of the spool -> round-N/train.jsonl -> `levada up RECIPE --set flywheel.round=…` (a child; takes itself up
// again) -> each trainer's draft to drafts/ -> all measured in service on the held-out prompts -> the best is promoted if it
// beats the one in service -> a line in flywheel.jsonl.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/pause.h"
#include "recipe/fanout_recipe.h"
#include "up/draft_client.h"
#include "up/events.h"
#include "up/live_spool.h"

namespace levada::up {

// Acceptance of a drafter over some prompts, and its decode speed.
struct Measured {
  std::int64_t prompts = 0;
  double accept_length = 0, ci95 = 0;  // mean over the prompts and half its 95% interval
  double tokens_per_s = 0;             // of one request at a time
};

// A drafter that was measured: a trainer's draft, or the n-grams.
struct Candidate {
  std::string id, folder;
  Measured held_out, extra;  // on the held-out prompts; on the recipe's own
};

// Which is to be promoted over `served`: the one with the longest accepted runs of those that win promote.min_gain and are
// no slower than promote.min_speed of it allows; null: none.
const Candidate* best_of(const std::vector<Candidate>& candidates, const Candidate& served,
                         const recipe::FlywheelSection& rules);

class Flywheel {
 public:
  struct Setup {
    recipe::FanoutRecipe recipe;          // with its flywheel
    std::vector<std::string> up_words;    // "levada up RECIPE --set …", to which a round adds its own
    std::vector<std::string> synthesize;  // "levada synthesize …"; empty: none
    std::vector<std::vector<std::int32_t>> eval_prompts;
    std::string server_key;
    std::function<void(const Event&)> tell;
    std::function<std::int64_t()> unix_s;
  };

  Flywheel(Setup setup, const Clock& clock, Pause& pause);
  // Ok when all rounds are done.
  Status run();

 private:
  struct State {
    std::int64_t round = 1, samples_seen = 0, without_promotion = 0, failures = 0;
    std::string last_sample;
    std::string promoted, before;  // folders of drafts; empty: none
    // What the promoted draft gave when it was measured, and the server without one.
    Candidate served, ngram;
  };

  Status load_state();
  Status save_state() const;
  bool over() const;
  // The server may have been started again, or have been left in the midst of a measurement.
  Status restore_service();
  // False: too few samples are new.
  Result<bool> prepare_round();
  Status synthesize();
  // The child's exit code; none if a pause or a stop ended it.
  Result<std::optional<int>> run_child(const std::vector<std::string>& words, const std::string& log);
  std::vector<std::string> round_words() const;
  std::filesystem::path last_draft(const std::string& consumer) const;
  Status one_round();
  Status finish_round();
  std::vector<Candidate> collect_drafts() const;
  Result<Measured> measure(const std::vector<std::vector<std::int32_t>>& prompts);
  // With this draft in service; an empty folder: with none.
  Status measure_served(Candidate& candidate);
  // On other prompts than these a figure of old does not count.
  bool is_current(const Candidate& candidate) const;
  Status promote(const std::vector<Candidate>& candidates);
  Status append_history(const std::vector<Candidate>& candidates, const std::string& promoted,
                        std::int64_t samples) const;
  void forget_old() const;
  bool paused() const;
  void say(const std::string& text);
  std::filesystem::path round_folder(std::int64_t round) const;

  const Setup setup_;
  const std::filesystem::path folder_;
  const Clock& clock_;
  Pause& pause_;
  DraftClient client_;
  State state_;
  std::vector<std::vector<std::int32_t>> held_out_;
  const std::int64_t started_us_;
  std::int64_t measuring_since_us_ = 0;
  std::int64_t waits_in_ = 0;  // the round of which it was said that samples are awaited
};

}  // namespace levada::up
