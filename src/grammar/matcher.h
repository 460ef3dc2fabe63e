// What: Matcher, how far one answer has come in its Grammar, and which tokens may come next.
// Owner: one request's.
// Thread: its owner's; Matchers of one Grammar run on any threads at once.
// Invariant: fill() speaks of the token after all accepted ones; accept() of a token that fill() does not show fails and
// changes nothing. What a step may cost is bounded: a grammar that costs more fails its matcher for good.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "grammar/compiler.h"

namespace levada::grammar {

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Grammar> grammar);
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  // Bit i % 32 of word i / 32: token i may come next. REQUIRES: one bit per id of the model's vocabulary. False: any may,
  // and the words say nothing. After the stop token, only stop tokens may follow.
  bool fill(std::span<std::uint32_t> words);
  Status accept(text::Token token);
  // Takes back the last `tokens` accepted ones. REQUIRES: so many were accepted.
  void rollback(std::int32_t tokens);
  // The answer so far matches the grammar; it may be able to go on.
  bool is_complete() const;
  // It is complete and ended by a stop token.
  bool is_finished() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada::grammar
