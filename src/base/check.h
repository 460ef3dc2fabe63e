// What: LEVADA_CHECK(condition, "why"), the end of a process whose own invariant is broken.
// Owner: none.
// Thread: any.
// Invariant: never used for what a user, file or peer can cause; those are Statuses. Active in every build type: a
// wrong page table is worse than a stop. The message goes to stderr with file and line, then std::abort().
#pragma once

namespace levada {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* why);
}  // namespace levada

#define LEVADA_CHECK(condition, why) \
  (static_cast<bool>(condition) ? void(0) : ::levada::check_failed(__FILE__, __LINE__, #condition, why))
