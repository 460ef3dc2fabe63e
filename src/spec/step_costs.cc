#include "spec/step_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace levada::spec {
namespace {

// A step reads the weights once; each further row costs a small part of that. What hardware and model make of it is
// measured soon.
double prior(double rows) { return 1 + rows / 32; }

}  // namespace

// One bin per number of rows up to 16, then eight per octave.
int StepCosts::bin_of(std::int32_t rows) {
  if (rows <= 16) return std::max(rows, 1) - 1;
  return std::min(15 + static_cast<int>(std::lround(8 * std::log2(rows / 16.0))), kBins - 1);
}

bool StepCosts::known(const Bin& bin, bool drafted) const {
  if (!drafted) return bin.samples > 0;
  return bin.samples > 0 && step_ - bin.last_step < (bin.samples == 1 ? kForgetOne : kForget);
}

bool StepCosts::absurd(std::int32_t requests, std::int32_t rows, double seconds) const {
  const Bin& undrafted = plain_[static_cast<std::size_t>(bin_of(requests))];
  return rows > requests && known(undrafted, false) && seconds > 2 * undrafted.seconds * rows / requests;
}

void StepCosts::on_step(std::int32_t requests, std::int32_t rows, double seconds) {
  ++step_;
  kept_.clear();
  const bool drafted = rows > requests;
  Bin& bin = (drafted ? drafted_ : plain_)[static_cast<std::size_t>(bin_of(rows))];
  if (!known(bin, drafted)) {
    const bool doubted = bin.doubted;
    bin = {
        .doubted = !doubted && absurd(requests, rows, seconds), .rows = static_cast<double>(rows), .seconds = seconds};
    if (bin.doubted) return;
  } else if (bin.samples < 4) {
    bin.seconds = std::min(bin.seconds, seconds);  // what disturbs a step only makes it longer
  } else {
    bin.seconds += (std::min(seconds, 2 * bin.seconds) - bin.seconds) / 16;
  }
  bin.rows += (rows - bin.rows) / 16;
  bin.samples = std::min(bin.samples + 1, 1'000);
  bin.last_step = step_;
}

double StepCosts::between(bool drafted, double rows, Bin below) const {
  const Bin* above = nullptr;
  const Bin* last = nullptr;                            // below, of the curve itself
  double slope = 0;                                     // of the curve behind it
  for (const Bin& bin : drafted ? drafted_ : plain_) {  // in the order of rows
    if (!known(bin, drafted)) continue;
    if (bin.rows > rows) {
      above = &bin;
      break;
    }
    if (last != nullptr) slope = (bin.seconds - last->seconds) / (bin.rows - last->rows);
    last = &bin;
    if (bin.rows >= below.rows) below = bin;
  }
  // More rows take longer, but no longer per row.
  if (above != nullptr) return std::max(below.seconds, above->seconds * rows / above->rows);
  if (below.rows == 0) return prior(rows);
  // A machine that is busy stays so; half the slope, as it has been measured.
  return std::max(below.seconds * prior(rows) / prior(below.rows), below.seconds + slope / 2 * (rows - below.rows));
}

double StepCosts::plain(double rows) const {
  const bool any = std::ranges::any_of(plain_, [&](const Bin& bin) { return known(bin, false); });
  double seconds = between(!any, rows, {});
  for (const Bin& bin : drafted_)  // more rows and their drafting take no less
    if (bin.rows >= rows && known(bin, true)) seconds = std::min(seconds, bin.seconds);
  return seconds;
}

double StepCosts::estimate(std::int32_t requests, std::int32_t rows) const {
  const double undrafted = plain(requests);
  if (rows <= requests) return undrafted;
  const Bin& own = drafted_[static_cast<std::size_t>(bin_of(rows))];
  if (known(own, true)) return own.seconds * rows / own.rows;
  return between(true, rows, {.samples = 1, .rows = static_cast<double>(requests), .seconds = undrafted});
}

double StepCosts::reach(std::int32_t requests) const {
  double rows = requests;
  for (const Bin& bin : drafted_)
    if (known(bin, true)) rows = std::max(rows, bin.rows);
  return 2 * rows;
}

const std::vector<double>& StepCosts::estimates(std::int32_t requests, std::int32_t most) const {
  if (kept_requests_ != requests) kept_.clear();
  kept_requests_ = requests;
  const double reachable = reach(requests);
  for (auto drafts = static_cast<std::int32_t>(kept_.size()); drafts <= most; ++drafts) {
    const std::int32_t rows = requests * (1 + drafts);
    kept_.push_back(rows <= reachable ? estimate(requests, rows) : std::numeric_limits<double>::infinity());
  }
  return kept_;
}

}  // namespace levada::spec
