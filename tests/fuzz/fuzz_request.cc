// libFuzzer entry: a request body from arbitrary bytes; the first byte says of which endpoint. Whatever it says, the answer is
// a call that keeps the parsers' promises, or one sentence.
#include <simdjson.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "serve/admin_routes.h"
#include "serve/chat_adapter.h"
#include "serve/text_routes.h"

namespace {

using namespace levada;

constexpr std::int32_t kContextTokens = 256;

serve::ModelContext make_model() {
  static const auto tokenizer = text::Tokenizer::from_json("tests/vectors/tiny/llama/tokenizer.json").value();
  static const auto chat_template = text::ChatTemplate::parse(tokenizer->chat_template()).value();
  serve::ModelContext model;
  model.info.vocab_size = tokenizer->vocab_size();
  model.info.path = model.served_name = "tiny";
  model.context_length_tokens = kContextTokens;
  model.tokenizer = tokenizer.get();
  model.chat_template = chat_template.get();
  model.max_batch_prompts = 8;
  model.max_text_bytes = serve::longest_fitting_text_bytes(*tokenizer, kContextTokens);
  model.check_fits = [](std::int32_t tokens) { return tokens < kContextTokens ? Status() : payload_too_large("long"); };
  return model;
}

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const Result<serve::CallSpec>& call) {
  if (!call.ok()) return require(!call.status().message().empty());
  require(!call->members.empty());
  for (const serve::Member& member : call->members) {
    require(!member.request.prompt.empty());
    require(member.request.prompt.size() + static_cast<std::size_t>(member.request.sampling.max_new_tokens) <=
            static_cast<std::size_t>(kContextTokens));
    for (const core::Token token : member.request.prompt) require(token >= 0 && token < 384);
  }
}

void check(const Result<std::string>& answer) {
  require(answer.ok() ? text::find_invalid_utf8(*answer) == std::string::npos : !answer.status().message().empty());
}

void read(std::uint8_t endpoint, const serve::ModelContext& model, simdjson::dom::object body) {
  const serve::ParseContext context{model, [] { return std::uint64_t{1}; }, [] { return std::string("id"); }, 0};
  switch (endpoint % 9) {
    case 0: return check(serve::parse_chat(context, body));
    case 1: return check(serve::parse_completion(context, body));
    case 2: return check(serve::parse_generate(context, body));
    case 3: return check(serve::parse_responses(context, body));
    case 4: return check(serve::parse_messages(context, body));
    case 5: return check(serve::count_message_tokens(model, body));
    case 6: return check(serve::tokenize(model, body));
    case 7: return check(serve::detokenize(model, body));
    default: static_cast<void>(serve::parse_abort(body).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const serve::ModelContext model = make_model();
  static simdjson::dom::parser parser;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto object = serve::parse_object(parser, body);
  if (object.ok()) read(data[0], model, *object);
  return 0;
}
