// What: Pace, how many drafts a step should verify, from what acceptance has been and what steps have cost; Track, one
// request's acceptance so far.
// Owner: the scheduler; a Track belongs to its request.
// Thread: the scheduler's.
// Invariant: the same calls give the same answers. A request whose drafts fail costs a vanishing share of its steps: it is
// tried again after pauses that double up to a limit, at once the longest where everybody's drafts fail. Without adaptation every step verifies the most there is.
// Formula: expected tokens of a step with m drafts, (1 - a^(m+1)) / (1 - a), by the time such a step takes; a: accepted
// share of the drafts that were reached, a mean over the last steps.
#pragma once

#include <cstdint>

#include "spec/step_costs.h"

namespace levada::spec {

// Accepted share of the drafts that were reached, a mean that fades.
class Acceptance {
 public:
  explicit Acceptance(double fade) : fade_(fade) {}
  void add(std::int32_t drafts, std::int32_t accepted);
  // Mixed with a guess that counts as much as `weight` drafts that were reached.
  double mixed(double guess, double weight) const { return (accepted_ + guess * weight) / (reached_ + weight); }
  bool surprised() const { return accepted_ < reached_ / 2; }

 private:
  double fade_, accepted_ = 0, reached_ = 0;
};

class Track {
 public:
  // A step that verified `drafts` and accepted the first `accepted` of them.
  void on_verified(std::int32_t drafts, std::int32_t accepted);
  // A step without drafts, though there could have been some.
  void on_plain_step();

 private:
  friend class Pace;
  std::int32_t pause() const;
  bool probing() const { return plain_ >= pause(); }
  bool rested() const;  // for the longest pause

  Acceptance acceptance_{0.95};
  std::int32_t pause_ = 0;  // plain steps before the next probe; 0: no probe has failed
  std::int32_t plain_ = 0;  // plain steps since drafts last failed or were wanted
};

class Pace {
 public:
  struct Options {
    bool adaptive = true;
    double first_guess = 0.6;  // of acceptance, where nothing is known
  };
  explicit Pace(Options options) : options_(options) {}

  // How many drafts a request should have verified in a step that decodes `requests` requests; at most `most`, 0: decode
  // plainly.
  std::int32_t choose(const Track& track, std::int32_t most, std::int32_t requests) const;
  // What any request's drafts came to: what is known of a request that is new or has had few.
  void on_verified(std::int32_t drafts, std::int32_t accepted);
  // What a step of decode rows alone took; `requests` of them, `rows` rows in all, drafts included.
  void on_step(std::int32_t requests, std::int32_t rows, double seconds);

 private:
  // Drafts with the most expected tokens per second if all requests had as many.
  std::int32_t best(double acceptance, std::int32_t most, std::int32_t requests) const;

  Options options_;
  Acceptance all_{0.99};
  double guess_weight_ = 2;  // of options_.first_guess, fades as well
  StepCosts costs_;
};

}  // namespace levada::spec
