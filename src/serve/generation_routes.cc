#include "serve/generation_routes.h"

#include <algorithm>

#include "base/random.h"
#include "serve/chat_adapter.h"
#include "serve/request_parser.h"
#include "serve/request_wishes.h"

namespace levada::serve {

namespace {

void send(const http::Responder& responder, Emission emission) {
  if (emission.status != 0 && !emission.stream) {
    return responder.respond(emission.status, "application/json", std::move(emission.bytes));
  }
  if (emission.stream) responder.start_stream(emission.status, "text/event-stream; charset=utf-8");
  if (!emission.bytes.empty()) responder.write(std::move(emission.bytes));
  if (emission.end) responder.end();
}

void refuse(Dialect dialect, const http::Responder& responder, const Status& fault) {
  if (dialect != Dialect::kMessages) return respond_error(responder, fault);
  responder.respond(http_status(fault), "application/json", typed_error_body(fault));
}

// The body may ask for an answer of a form: one of the fields that do is named in it, if only in somebody's text.
bool may_compile(std::string_view body) {
  for (const std::string_view field :
       {"\"response_format\"", "\"json_schema\"", "\"regex\"", "\"ebnf\"", "\"structural_tag\"", "\"tool_choice\""}) {
    if (body.find(field) != std::string_view::npos) return true;
  }
  return false;
}

// Conversations as the model would have them by itself: one answer each, not forced into a form, whose client doesn't mind.
bool may_be_kept(const http::Request& request, const CallSpec& call) {
  const auto no = request.headers.find("x-levada-no-capture");
  if (no != request.headers.end() && no->second != "0") return false;
  return call.choices == 1 && std::all_of(call.members.begin(), call.members.end(), [](const Member& member) {
           return member.request.guide == nullptr && member.request.hidden == core::HiddenWish::kNone;
         });
}

// Adds a capture's result to the last bytes of an answer.
void add_capture(Emission& emission, bool stream, const std::string& result) {
  constexpr std::string_view kDone = "data: [DONE]\n\n";
  std::string& bytes = emission.bytes;
  if (stream) {
    bytes.insert(bytes.size() - kDone.size(), "data: {\"object\":\"levada.capture\",\"capture\":" + result + "}\n\n");
  } else {
    bytes.insert(bytes.size() - 1, ",\"capture\":" + result);
  }
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
  add("/v1/responses", Dialect::kResponses);
  add("/v1/messages", Dialect::kMessages);
  add("/v1/embeddings", Dialect::kEmbedding);
  add("/generate", Dialect::kGenerate);
}

void GenerationRoutes::accept(Dialect dialect, http::Request request, const http::Responder& responder) {
  const std::size_t body_bytes = request.body.size();
  const bool compiles = may_compile(request.body);
  const Status taken = intake_.submit(
      body_bytes,
      [this, dialect, request = std::move(request), responder,
       arrival_us = clock_.now_us()](simdjson::dom::parser& parser) -> std::function<void()> {
        if (responder.client_gone()) return nullptr;
        Result<Parsed> parsed = parse(dialect, parser, request, arrival_us);
        if (!parsed.ok()) {
          refuse(dialect, responder, parsed.status());
          return nullptr;
        }
        return [this, parsed = std::move(parsed).value(), responder]() mutable { start(std::move(parsed), responder); };
      },
      compiles);
  if (!taken.ok()) refuse(dialect, responder, taken);
}

Result<GenerationRoutes::Parsed> GenerationRoutes::parse(Dialect dialect, simdjson::dom::parser& parser,
                                                         const http::Request& request, std::int64_t arrival_us) const {
  LEVADA_ASSIGN_OR_RETURN(const simdjson::dom::object body, parse_object(parser, request.body));
  const ParseContext context{model_, random_word, [] { return random_hex(2); }, arrival_us};
  const auto parse_call = [&] {
    switch (dialect) {
      case Dialect::kChat: return parse_chat(context, body);
      case Dialect::kCompletion: return parse_completion(context, body);
      case Dialect::kResponses: return parse_responses(context, body);
      case Dialect::kMessages: return parse_messages(context, body);
      case Dialect::kEmbedding: return parse_embedding(context, body);
      case Dialect::kGenerate: break;
    }
    return parse_generate(context, body);
  };
  Parsed parsed;
  LEVADA_ASSIGN_OR_RETURN(parsed.call, parse_call());
  LEVADA_RETURN_IF_ERROR(check_wishes(parsed.call));
  if (dialect == Dialect::kEmbedding) return parsed;
  parsed.sampled = samples_ != nullptr && may_be_kept(request, parsed.call) && samples_->wants();
  if (dialect == Dialect::kGenerate) {
    LEVADA_ASSIGN_OR_RETURN(parsed.capture,
                            read_captures(terms_, http::bearer_token(request), body, parsed.call.members.size()));
    for (std::size_t i = 0; parsed.capture && i < parsed.call.members.size(); ++i) {
      const Status& fault = parsed.call.members[i].fault;
      if (!fault.ok()) parsed.capture->items[i].error = fault;
    }
    return parsed;
  }
  if (has_named_events(dialect)) return parsed;
  LEVADA_ASSIGN_OR_RETURN(parsed.live_capture, read_live_capture(terms_, http::bearer_token(request), body));
  if (parsed.live_capture && parsed.call.members.size() != 1) {
    return invalid_argument("captures one prompt, the call has " + std::to_string(parsed.call.members.size()),
                            "capture");
  }
  return parsed;
}

void GenerationRoutes::start(Parsed parsed, const http::Responder& responder) {
  if (responder.client_gone()) return;
  if (parsed.capture) return captures_->start(std::move(parsed.call), std::move(*parsed.capture), responder);
  if (parsed.live_capture) return start_captured(std::move(parsed.call), std::move(*parsed.live_capture), responder);
  if (parsed.sampled) return start_sampled(std::move(parsed.call), responder);
  const CallId id =
      calls_.start(std::move(parsed.call), [responder](Emission emission) { send(responder, std::move(emission)); });
  responder.on_disconnect(
      [this, id] { calls_.drop(id, Status(StatusCode::kAborted, "the client closed the connection")); });
}

void GenerationRoutes::start_sampled(CallSpec call, const http::Responder& responder) {
  call.wants_ids = true;
  std::vector<std::vector<core::Token>> prompts;
  for (const Member& member : call.members) prompts.push_back(member.request.prompt);
  const CallId id =
      calls_.start(std::move(call), [this, responder, prompts = std::move(prompts)](Emission emission) mutable {
        if (emission.end && emission.failure.ok()) {
          for (std::size_t i = 0; i < prompts.size(); ++i) {
            samples_->offer(std::move(prompts[i]), std::move(emission.answer_ids[i]));
          }
        }
        send(responder, std::move(emission));
      });
  responder.on_disconnect(
      [this, id] { calls_.drop(id, Status(StatusCode::kAborted, "the client closed the connection")); });
}

void GenerationRoutes::start_captured(CallSpec call, CaptureItem item, const http::Responder& responder) {
  call.wants_ids = true;
  // The answer may start on a cached prefix, which has no hidden states; so prompt and answer are computed once more, and
  // the client's tokens don't wait for it.
  auto capture = [this, responder, item = std::move(item), tokens = call.members.front().request.prompt,
                  stream = call.stream](Emission emission) mutable {
    const std::size_t prompt_tokens = tokens.size();
    tokens.insert(tokens.end(), emission.answer_ids.front().begin(), emission.answer_ids.front().end());
    const auto most = static_cast<std::size_t>(model_.context_length_tokens) - 1;  // the prefill samples a token
    tokens.resize(std::min(tokens.size(), most));
    complete_live_capture(item, tokens, prompt_tokens);
    const auto batch =
        captures_->capture(std::move(item), std::move(tokens),
                           [responder, stream, emission = std::move(emission)](const std::string& result) mutable {
                             add_capture(emission, stream, result);
                             send(responder, std::move(emission));
                           });
    responder.on_disconnect([this, batch] { captures_->drop(batch); });
  };
  const CallId id = calls_.start(std::move(call), [responder, capture = std::move(capture)](Emission emission) mutable {
    if (emission.end && emission.failure.ok()) return capture(std::move(emission));
    send(responder, std::move(emission));
  });
  responder.on_disconnect(
      [this, id] { calls_.drop(id, Status(StatusCode::kAborted, "the client closed the connection")); });
}

}  // namespace levada::serve
