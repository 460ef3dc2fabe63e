// What: TokenGuide, what a request's answer may look like (a grammar), asked token by token.
// Owner: its Request; one request alone uses it.
// Thread: the scheduler's.
// Invariant: allowed() speaks of the token after all accepted ones; the same accepted tokens always give the same mask.
// A guided request has no lookahead: its next row is planned when its newest token is known.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "core/ids.h"

namespace levada::core {

class TokenGuide {
 public:
  virtual ~TokenGuide() = default;
  // Clears the bits of ids that may not come next, in words that are all ones on entry: bit i % 32 of word i / 32 is id
  // i. False: any id may come, the words don't matter. At least one id is left.
  virtual bool allowed(std::span<std::uint32_t> words) = 0;
  // A token of the answer, the one that ends it included. Not ok: it wasn't allowed, and the request fails.
  virtual Status accept(Token token) = 0;
  // Takes back the last `tokens` accepted ones. REQUIRES: so many were accepted.
  virtual void rollback(std::int32_t tokens) = 0;
};

}  // namespace levada::core
