// What: StepCosts, what a step of so many rows takes, from steps measured and a prior for the rest.
// Owner: Pace.
// Thread: the scheduler's.
// Invariant: where nothing was measured an estimate is the least that steps of fewer and of more rows allow, so that what may
// be cheap is tried; more than twice the rows that were measured is out of reach, so that it is not tried at once. Steps with
// drafts are kept apart from plain ones: most of them make the next drafts too.
// What a bin of drafted steps knows is forgotten after a while, sooner where it is one sample; of plain steps nothing is, as
// there are none to measure while some request drafts. A first sample that no work explains (the step
// recorded a graph, the machine was elsewhere) is not believed until the second agrees.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace levada::spec {

class StepCosts {
 public:
  void on_step(std::int32_t requests, std::int32_t rows, double seconds);
  // Times of steps of `requests` requests with 0, 1 .. `most` drafts each, infinite where out of reach; in seconds once
  // anything was measured, else relative. The same for every request of a step, so they are kept until the next on_step().
  const std::vector<double>& estimates(std::int32_t requests, std::int32_t most) const;

 private:
  static constexpr int kBins = 96;
  static constexpr std::int64_t kForgetOne = 64, kForget = 1024;  // steps

  struct Bin {
    std::int32_t samples = 0;
    bool doubted = false;
    std::int64_t last_step = 0;
    double rows = 0, seconds = 0;
  };
  using Curve = std::array<Bin, kBins>;

  static int bin_of(std::int32_t rows);
  bool known(const Bin& bin, bool drafted) const;
  // More than the rows one by one would take, and their drafting.
  bool absurd(std::int32_t requests, std::int32_t rows, double seconds) const;
  double estimate(std::int32_t requests, std::int32_t rows) const;
  double reach(std::int32_t requests) const;  // rows
  double plain(double rows) const;
  // By the nearest known bins below and above of plain steps, or of those with drafts beside `below`, which is known.
  double between(bool drafted, double rows, Bin below) const;

  Curve plain_, drafted_;
  std::int64_t step_ = 0;
  mutable std::int32_t kept_requests_ = 0;
  mutable std::vector<double> kept_;
};

}  // namespace levada::spec
