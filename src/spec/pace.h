// What: Pace, how many drafts a step should verify, from what acceptance has been and what steps have cost; Track, one
// request's acceptance so far.
// Owner: the scheduler; a Track belongs to its request.
// Thread: the scheduler's.
// Invariant: the same calls give the same answers. A request whose drafts fail costs a vanishing share of its steps: it is
// tried again after pauses that double up to a limit. Without adaptation every step verifies the most there is.
// Formula: expected tokens of a step with m drafts, (1 - a^(m+1)) / (1 - a), by the time such a step takes; a: accepted
// share of the drafts that were reached, a mean over the last steps.
#pragma once

#include <array>
#include <cstdint>

namespace levada::spec {

class Track {
 public:
  // A step that verified `drafts` and accepted the first `accepted` of them.
  void on_verified(std::int32_t drafts, std::int32_t accepted);
  // A step without drafts, though there could have been some.
  void on_plain_step();

 private:
  friend class Pace;
  double acceptance_ = -1;       // below 0: nothing is known yet
  std::int32_t pause_ = 0;       // steps until drafts are tried again
  std::int32_t last_pause_ = 0;  // how long it was when drafts last failed
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
  // What a step of decode rows alone took; `requests` of them, `rows` rows in all, drafts included.
  void on_step(std::int32_t requests, std::int32_t rows, double seconds);

 private:
  Options options_;
};

}  // namespace levada::spec
