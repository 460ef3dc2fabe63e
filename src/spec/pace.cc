#include "spec/pace.h"

#include <algorithm>

namespace levada::spec {
namespace {

constexpr std::int32_t kFirstPause = 8, kLongestPause = 64;
constexpr double kMargin = 1.03;    // that drafts must win: less is noise of the measured times
constexpr std::int32_t kProbe = 1;  // drafts
constexpr double kWorthless = 0.1;  // acceptance of all requests' drafts
constexpr double kGuessFade = 0.9;
constexpr double kOthersWeight = 12;  // of all requests' acceptance in one's own

}  // namespace

void Acceptance::add(std::int32_t drafts, std::int32_t accepted) {
  accepted_ = fade_ * accepted_ + accepted;
  reached_ = fade_ * reached_ + std::min(accepted + 1, drafts);
}

std::int32_t Track::pause() const { return std::max(pause_, kFirstPause); }

bool Track::rested() const { return plain_ >= kLongestPause; }

void Track::on_verified(std::int32_t drafts, std::int32_t accepted) {
  if (drafts <= 0) return;
  acceptance_.add(drafts, accepted);
  if (!probing()) {
    if (accepted > 0) pause_ = 0;
    plain_ = 0;
  } else if (accepted < drafts) {
    plain_ = 0;
    pause_ = std::min(2 * pause(), kLongestPause);
  } else if (!acceptance_.surprised()) {
    plain_ = 0;
  }  // else the next step is a probe too, until acceptance speaks for itself
}

void Track::on_plain_step() { ++plain_; }

std::int32_t Pace::best(double acceptance, std::int32_t most, std::int32_t requests) const {
  const std::vector<double>& costs = costs_.estimates(requests, most);
  std::int32_t best = 0;
  double best_rate = 0, tokens = 0, reached = 1;
  for (std::int32_t drafts = 0; drafts <= most; ++drafts) {
    tokens += reached;
    reached *= acceptance;
    const double rate = tokens / costs[static_cast<std::size_t>(drafts)];
    if (rate <= best_rate) continue;
    best_rate = drafts == 0 ? kMargin * rate : rate;
    best = drafts;
  }
  return best;
}

std::int32_t Pace::choose(const Track& track, std::int32_t most, std::int32_t requests) const {
  if (most <= 0) return 0;
  if (!options_.adaptive) return most;
  requests = std::max(requests, 1);
  const double others = all_.mixed(options_.first_guess, guess_weight_);
  const std::int32_t wanted = best(track.acceptance_.mixed(others, kOthersWeight), most, requests);
  const bool probing = others < kWorthless ? track.rested() : track.probing();
  if (wanted > 0 || !probing) return wanted;
  return best(1.0, most, requests) > 0 ? kProbe : 0;  // where rows cost what steps cost there is nothing to find out
}

void Pace::on_verified(std::int32_t drafts, std::int32_t accepted) {
  if (drafts <= 0) return;
  all_.add(drafts, accepted);
  guess_weight_ *= kGuessFade;
}

void Pace::on_step(std::int32_t requests, std::int32_t rows, double seconds) {
  if (requests > 0 && seconds > 0) costs_.on_step(requests, rows, seconds);
}

}  // namespace levada::spec
