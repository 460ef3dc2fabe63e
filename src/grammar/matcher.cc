#include "grammar/matcher.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "grammar/compiled.h"
#include "work_limit.h"

namespace levada::grammar {

namespace {

// A step of a usual grammar takes some ten microseconds. This only keeps a hostile one from holding up all others.
constexpr WorkLimit::Limits kStepLimits{50'000, 64 << 20};

}  // namespace

struct Matcher::Impl {
  explicit Impl(std::shared_ptr<const Grammar> the_grammar)
      : grammar(std::move(the_grammar)), engine(grammar->compiled, grammar->stop_ids) {}

  // Runs the engine under the step's limit; false if that failed the matcher.
  template <class Work>
  bool limited(Work work) {
    try {
      const WorkLimit limit(kStepLimits);
      work();
    } catch (const WorkLimitHit& hit) {
      failure = invalid_argument("the grammar of this request can't be followed: a token of it " + hit.what);
    } catch (const std::exception& error) {
      failure = internal_error(std::string("the grammar engine failed: ") + error.what());
    }
    return failure.ok();
  }
  bool stops(text::Token token) const {
    return std::find(grammar->stop_ids.begin(), grammar->stop_ids.end(), token) != grammar->stop_ids.end();
  }
  bool fill_stop_ids(std::span<std::uint32_t> words) const {
    std::fill(words.begin(), words.end(), 0u);
    for (const text::Token id : grammar->stop_ids) words[static_cast<std::size_t>(id) / 32] |= 1u << (id % 32);
    return true;
  }

  std::shared_ptr<const Grammar> grammar;
  xgrammar::GrammarMatcher engine;
  std::int32_t after_end = 0;  // stop tokens accepted beyond the first
  Status failure;
};

Matcher::Matcher(std::shared_ptr<const Grammar> grammar) : impl_(std::make_unique<Impl>(std::move(grammar))) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

bool Matcher::fill(std::span<std::uint32_t> words) {
  if (!impl_->failure.ok()) return false;  // the next accept() says why
  if (impl_->engine.IsTerminated()) return impl_->fill_stop_ids(words);
  std::int64_t shape = static_cast<std::int64_t>(words.size());
  DLTensor tensor{};
  tensor.data = words.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = 1;
  tensor.dtype = xgrammar::GetBitmaskDLType();
  tensor.shape = &shape;
  bool masked = false;
  return impl_->limited([&] { masked = impl_->engine.FillNextTokenBitmask(&tensor); }) && masked;
}

Status Matcher::accept(text::Token token) {
  if (!impl_->failure.ok()) return impl_->failure;
  const Status refused = internal_error("token " + std::to_string(token) + " does not follow the request's grammar");
  if (impl_->engine.IsTerminated()) {
    if (!impl_->stops(token)) return refused;
    ++impl_->after_end;
    return {};
  }
  bool accepted = false;
  if (!impl_->limited([&] { accepted = impl_->engine.AcceptToken(token); })) return impl_->failure;
  return accepted ? Status() : refused;
}

void Matcher::rollback(std::int32_t tokens) {
  const std::int32_t beyond = std::min(tokens, impl_->after_end);
  impl_->after_end -= beyond;
  if (tokens > beyond) impl_->engine.Rollback(tokens - beyond);
}

bool Matcher::is_complete() const { return impl_->engine.IsCompleted(); }
bool Matcher::is_finished() const { return impl_->engine.IsTerminated(); }

}  // namespace levada::grammar
