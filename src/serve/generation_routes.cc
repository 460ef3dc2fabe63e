#include "serve/generation_routes.h"

#include <random>

#include "serve/request_parser.h"

namespace levada::serve {

namespace {

std::uint64_t random_word() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

std::string random_id() {
  constexpr char kHex[] = "0123456789abcdef";
  std::string id;
  for (int word = 0; word < 2; ++word) {
    std::uint64_t bits = random_word();
    for (int digit = 0; digit < 16; ++digit, bits >>= 4) id += kHex[bits & 15];
  }
  return id;
}

void send(const http::Responder& responder, Emission emission) {
  if (emission.status != 0 && !emission.stream) {
    return responder.respond(emission.status, "application/json", std::move(emission.bytes));
  }
  if (emission.stream) responder.start_stream(emission.status, "text/event-stream; charset=utf-8");
  if (!emission.bytes.empty()) responder.write(std::move(emission.bytes));
  if (emission.end) responder.end();
}

}  // namespace

void GenerationRoutes::register_on(Router& router) {
  const auto add = [&](const char* path, Dialect dialect) {
    router.add("POST", path, Access::kUser, [this, dialect](http::Request request, http::Responder responder) {
      accept(dialect, std::move(request), responder);
    });
  };
  add("/v1/chat/completions", Dialect::kChat);
  add("/v1/completions", Dialect::kCompletion);
  add("/generate", Dialect::kGenerate);
}

void GenerationRoutes::accept(Dialect dialect, http::Request request, const http::Responder& responder) {
  const std::size_t body_bytes = request.body.size();
  const Status taken = intake_.submit(
      body_bytes,
      [this, dialect, request = std::move(request), responder,
       arrival_us = clock_.now_us()](simdjson::dom::parser& parser) -> std::function<void()> {
        if (responder.client_gone()) return nullptr;
        Result<Parsed> parsed = parse(dialect, parser, request, arrival_us);
        if (!parsed.ok()) {
          respond_error(responder, parsed.status());
          return nullptr;
        }
        return [this, parsed = std::move(parsed).value(), responder]() mutable { start(std::move(parsed), responder); };
      });
  if (!taken.ok()) respond_error(responder, taken);
}

Result<GenerationRoutes::Parsed> GenerationRoutes::parse(Dialect dialect, simdjson::dom::parser& parser,
                                                         const http::Request& request, std::int64_t arrival_us) const {
  LEVADA_ASSIGN_OR_RETURN(const simdjson::dom::object body, parse_object(parser, request.body));
  const ParseContext context{model_, random_word, random_id, arrival_us};
  const auto parse_call = [&] {
    switch (dialect) {
      case Dialect::kChat: return parse_chat(context, body);
      case Dialect::kCompletion: return parse_completion(context, body);
      case Dialect::kGenerate: break;
    }
    return parse_generate(context, body);
  };
  Parsed parsed;
  LEVADA_ASSIGN_OR_RETURN(parsed.call, parse_call());
  if (dialect == Dialect::kGenerate) {
    LEVADA_ASSIGN_OR_RETURN(parsed.capture,
                            read_captures(terms_, bearer_key(request), body, parsed.call.members.size()));
  }
  return parsed;
}

void GenerationRoutes::start(Parsed parsed, const http::Responder& responder) {
  if (responder.client_gone()) return;
  if (parsed.capture) return captures_->start(std::move(parsed.call), std::move(*parsed.capture), responder);
  const CallId id =
      calls_.start(std::move(parsed.call), [responder](Emission emission) { send(responder, std::move(emission)); });
  responder.on_disconnect(
      [this, id] { calls_.drop(id, Status(StatusCode::kAborted, "the client closed the connection")); });
}

}  // namespace levada::serve
