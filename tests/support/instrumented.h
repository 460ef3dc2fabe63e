// What: whether a sanitizer watches this build, and which.
// Owner: tests.
// Thread: any.
// Invariant: a test drops rounds of a long search by it, never a kind of case: sanitizers see a path the first time it runs,
// the many rounds look for wrong answers and are the release build's. Where one thread computes long, TSan sees nothing.
#pragma once

namespace levada::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kInstrumented = true;
#else
inline constexpr bool kInstrumented = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kRacesOnly = true;
#else
inline constexpr bool kRacesOnly = false;
#endif

}  // namespace levada::test
