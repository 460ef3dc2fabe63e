#include "registry/registry_server.h"

#include "base/secret.h"
#include "registry/message_json.h"
#include "registry/metrics_text.h"

namespace levada::registry {

namespace {

using fanout::Error;
using fanout::ErrorCode;
using fanout::Outcome;
using fanout::Reply;
using fanout::Role;

constexpr std::size_t kMaxBodyBytes = 1 << 20;
constexpr std::string_view kPrefix = "/v1/fanout/";

std::optional<Error> refuse(const http::Request& request, const Tokens& tokens, Role needed) {
  const std::string_view given = http::bearer_token(request);
  // Both are compared always: which one matched does not show in the time.
  const bool is_consumer = equal_in_constant_time(given, tokens.consumer);
  const bool is_producer = !tokens.producer.empty() & equal_in_constant_time(given, tokens.producer);
  if (!is_consumer && !is_producer) {
    return Error{ErrorCode::kUnauthenticated, "a valid token is needed: send it as 'Authorization: Bearer TOKEN'"};
  }
  if (needed == Role::kProducer && !is_producer) {
    return Error{ErrorCode::kRole, "this operation is the producer's"};
  }
  return std::nullopt;
}

void respond(const http::Responder& responder, const Outcome<Reply>& outcome, const RefContext& context) {
  if (outcome.ok()) {
    responder.respond(200, "application/json", reply_json(*outcome, context));
  } else {
    responder.respond(fanout::http_status_of(outcome.error().code), "application/json", error_json(outcome.error()));
  }
}

void mount_metrics(http::Server& server, Registry& registry, const Tokens& tokens, const RefContext& context) {
  const auto handler = [&server, &registry, tokens, context](http::Request request, const http::Responder& responder) {
    if (auto refused = refuse(request, tokens, Role::kConsumer)) return respond(responder, *refused, context);
    registry.submit(fanout::SnapshotRequest{}, [&server, responder, context](Outcome<Reply> outcome) {
      server.post([responder, context, outcome = std::move(outcome)] {
        if (!outcome.ok()) return respond(responder, outcome, context);
        responder.respond(200, "text/plain; version=0.0.4; charset=utf-8",
                          metrics_text(std::get<fanout::SnapshotReply>(*outcome)));
      });
    });
  };
  server.route("GET", "/metrics", handler);
}

}  // namespace

Status mount_registry(http::Server& server, Registry& registry, const Tokens& tokens, const RefContext& context) {
  if (tokens.consumer.empty()) {
    return invalid_argument("the registry is not served without a token for its consumers", "token");
  }
  for (const Operation& operation : operations()) {
    const auto handler = [&server, &registry, tokens, context, operation](http::Request request,
                                                                          const http::Responder& responder) {
      if (auto refused = refuse(request, tokens, operation.role)) return respond(responder, *refused, context);
      if (request.body.size() > kMaxBodyBytes) {
        return respond(responder, Error{ErrorCode::kLimit, "the body is longer than 1 MiB"}, context);
      }
      auto parsed = parse_request(operation.name, request.body);
      if (!parsed.ok()) return respond(responder, parsed.error(), context);
      // JSON is written on the I/O thread: the registry's has better things to do.
      const Registry::Ticket ticket =
          registry.submit(std::move(*parsed), [&server, responder, context](Outcome<Reply> outcome) {
            server.post([responder, context, outcome = std::move(outcome)] { respond(responder, outcome, context); });
          });
      responder.on_disconnect([&registry, ticket] { registry.cancel(ticket); });
    };
    server.route("POST", std::string(kPrefix) + std::string(operation.name), handler);
  }
  mount_metrics(server, registry, tokens, context);
  return {};
}

}  // namespace levada::registry
