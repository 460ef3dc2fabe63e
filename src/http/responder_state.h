// What: Responder::State, what all copies of one Responder share: which exchange of which connection they answer.
// Owner: the copies; its end, with the last of them, is how an unanswered request is noticed.
// Thread: any.
// Invariant: refers to one exchange for ever; once that is over, every call does nothing.
// The connection never holds it, so that its end is the handler's doing.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "http/exchange.h"
#include "http/server.h"

namespace levada::http {

struct Responder::State {
  State(std::shared_ptr<Exchange> exchange_of, std::uint64_t exchange_number)
      : exchange(std::move(exchange_of)), number(exchange_number) {}
  ~State() { exchange->abandon(number); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<Exchange> exchange;  // shares the Connection it is part of
  const std::uint64_t number;
};

}  // namespace levada::http
