// What: Responder::State, what all copies of one Responder share: which exchange of which connection they answer.
// Owner: the copies; its end, with the last of them, is how an unanswered request is noticed.
// Thread: any.
// Invariant: refers to one exchange for ever; once that is over, every call does nothing.
// The connection never holds it, so that its end is the handler's doing.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "http/connection.h"
#include "http/server.h"

namespace levada::http {

struct Responder::State {
  State(std::shared_ptr<Connection> connection_of, std::uint64_t exchange_number)
      : connection(std::move(connection_of)), exchange(exchange_number) {}
  ~State() { connection->abandon(exchange); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<Connection> connection;
  const std::uint64_t exchange;
};

}  // namespace levada::http
