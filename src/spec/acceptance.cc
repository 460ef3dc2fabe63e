#include "spec/acceptance.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace levada::spec {
namespace {

using Row = std::span<const double>;

Row row_of(std::span<const double> rows, std::int64_t row, std::int64_t vocabulary) {
  return rows.subspan(static_cast<std::size_t>(row * vocabulary), static_cast<std::size_t>(vocabulary));
}

double at(Row row, core::Token token) { return row[static_cast<std::size_t>(token)]; }

double total(Row mass) { return std::accumulate(mass.begin(), mass.end(), 0.0); }

// The token whose share of the unnormalised mass holds `coin`; never one without mass, whatever the sums' rounding.
core::Token pick(Row mass, double coin) {
  const double wanted = coin * total(mass);
  double sum = 0;
  core::Token last = 0;
  for (std::size_t i = 0; i < mass.size(); ++i) {
    if (mass[i] == 0) continue;
    sum += mass[i];
    last = static_cast<core::Token>(i);
    if (sum > wanted) break;
  }
  return last;
}

// (scale p - q)+
std::vector<double> residual(double scale, Row p, Row q) {
  std::vector<double> rest(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) rest[i] = std::max(scale * p[i] - q[i], 0.0);
  return rest;
}

// Where nothing is left the target itself: then it equals what was drawn from, and a rejection is rounding's.
core::Token pick_residual(double scale, Row p, Row q, double coin) {
  const std::vector<double> rest = residual(scale, p, q);
  return pick(total(rest) > 0 ? Row(rest) : p, coin);
}

std::int64_t check_shapes(const Verification& v) {
  const std::size_t rows = v.drafts.size() + 1;
  LEVADA_CHECK(v.vocabulary > 0, "a distribution is over something");
  LEVADA_CHECK(v.target.size() == rows * static_cast<std::size_t>(v.vocabulary), "a target row for each draft and one");
  LEVADA_CHECK(v.coins.size() == rows, "a coin for each row");
  return static_cast<std::int64_t>(v.drafts.size());
}

// Of arXiv 2403.10444: p_i, the probability with which a prefix of i drafts may at most be kept; index 0: the empty one.
std::vector<double> prefix_shares(const Verification& v, std::span<const double> draft) {
  std::vector<double> shares{1.0};
  for (std::size_t i = 0; i < v.drafts.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const double p = at(row_of(v.target, row, v.vocabulary), v.drafts[i]);
    const double q = at(row_of(draft, row, v.vocabulary), v.drafts[i]);
    shares.push_back(q > 0 ? std::min(shares.back() * p / q, 1.0) : 0.0);
  }
  return shares;
}

}  // namespace

Verdict verify_greedy(std::span<const core::Token> drafts, std::span<const core::Token> argmax) {
  LEVADA_CHECK(argmax.size() == drafts.size() + 1, "a choice of the target for each draft and one");
  std::size_t run = 0;
  while (run < drafts.size() && drafts[run] == argmax[run]) ++run;
  return {static_cast<std::int32_t>(run), argmax[run]};
}

Verdict verify_point_mass(const Verification& v, double threshold_single, double threshold_accumulated) {
  const std::int64_t drafts = check_shapes(v);
  for (std::int64_t i = 0; i < drafts; ++i) {
    const Row p = row_of(v.target, i, v.vocabulary);
    const core::Token draft = v.drafts[static_cast<std::size_t>(i)];
    const double probability = at(p, draft), coin = v.coins[static_cast<std::size_t>(i)];
    if (probability > 0 && (coin < probability / threshold_accumulated || probability >= threshold_single)) continue;
    std::vector<double> rest(p.begin(), p.end());
    rest[static_cast<std::size_t>(draft)] = 0;
    return {static_cast<std::int32_t>(i), pick(rest, v.last)};
  }
  return {static_cast<std::int32_t>(drafts), pick(row_of(v.target, drafts, v.vocabulary), v.last)};
}

Verdict verify_tokenwise(const Verification& v, std::span<const double> draft) {
  const std::int64_t drafts = check_shapes(v);
  LEVADA_CHECK(draft.size() == v.drafts.size() * static_cast<std::size_t>(v.vocabulary), "a row for each draft");
  for (std::int64_t i = 0; i < drafts; ++i) {
    const Row p = row_of(v.target, i, v.vocabulary), q = row_of(draft, i, v.vocabulary);
    const core::Token token = v.drafts[static_cast<std::size_t>(i)];
    if (at(q, token) > 0 && v.coins[static_cast<std::size_t>(i)] * at(q, token) < at(p, token)) continue;
    return {static_cast<std::int32_t>(i), pick_residual(1.0, p, q, v.last)};
  }
  return {static_cast<std::int32_t>(drafts), pick(row_of(v.target, drafts, v.vocabulary), v.last)};
}

Verdict verify_block(const Verification& v, std::span<const double> draft) {
  const std::int64_t drafts = check_shapes(v);
  LEVADA_CHECK(draft.size() == v.drafts.size() * static_cast<std::size_t>(v.vocabulary), "a row for each draft");
  const std::vector<double> shares = prefix_shares(v, draft);
  // From the longest prefix down: a draft that fails by itself may be kept by one behind it.
  for (std::int64_t kept = drafts; kept > 0; --kept) {
    const double share = shares[static_cast<std::size_t>(kept)];
    const Row p = row_of(v.target, kept, v.vocabulary);
    double chance = share;
    if (kept < drafts && share > 0 && share < 1) {
      const double rest = total(residual(share, p, row_of(draft, kept, v.vocabulary)));
      chance = rest / (rest + 1 - share);
    }
    if (v.coins[static_cast<std::size_t>(kept - 1)] >= chance) continue;
    if (kept == drafts) return {static_cast<std::int32_t>(kept), pick(p, v.last)};
    return {static_cast<std::int32_t>(kept), pick_residual(share, p, row_of(draft, kept, v.vocabulary), v.last)};
  }
  if (drafts == 0) return {0, pick(row_of(v.target, 0, v.vocabulary), v.last)};
  return {0, pick_residual(1.0, row_of(v.target, 0, v.vocabulary), row_of(draft, 0, v.vocabulary), v.last)};
}

}  // namespace levada::spec
