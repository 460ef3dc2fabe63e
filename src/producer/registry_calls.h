// What: call_until_heard(), a registry operation repeated until the registry has answered.
// Owner: free function.
// Thread: any.
// Invariant: only "unavailable" and "busy" are repeated, unchanged: every operation of the protocol may be.
// The wait between tries grows to two seconds.
#pragma once

#include <algorithm>
#include <utility>

#include "base/pause.h"
#include "fanout/registry_api.h"

namespace levada::producer {

inline constexpr std::int64_t kFirstCallPauseUs = 20'000;
inline constexpr std::int64_t kLongestCallPauseUs = 2'000'000;

// The last answer; still unavailable only if `pause` was stopped.
template <class R>
fanout::Outcome<typename R::Reply> call_until_heard(fanout::RegistryApi& registry, const R& request, Pause& pause) {
  for (std::int64_t wait_us = kFirstCallPauseUs;; wait_us = std::min(2 * wait_us, kLongestCallPauseUs)) {
    auto outcome = registry.call(request);
    if (outcome.ok() || !fanout::is_retryable(outcome.error().code) || !pause.wait_us(wait_us)) return outcome;
  }
}

// What ended a call that did not succeed: kAborted for a stop, kInternal for a refusal.
inline Status call_failed(std::string_view op, const fanout::Error& error, const Pause& pause) {
  const std::string said = std::string(op) + ": " + std::string(to_string(error.code)) + ": " + error.message;
  return Status(pause.stopped() ? StatusCode::kAborted : StatusCode::kInternal, said);
}

}  // namespace levada::producer
