#include "serve/logprob_json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "serve/json_text.h"

namespace levada::serve {

namespace {

std::string name_of(const text::Tokenizer* tokenizer, core::Token token) {
  if (tokenizer == nullptr) return "token_id:" + std::to_string(token);
  const std::string_view bytes = tokenizer->bytes(token);
  if (text::find_invalid_utf8(bytes) == std::string_view::npos) return std::string(bytes);
  std::string name = "bytes:";
  for (const char c : bytes) {
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    name += escaped;
  }
  return name;
}

void append_bytes(const text::Tokenizer* tokenizer, core::Token token, std::string& out) {
  if (tokenizer == nullptr) {
    out += "null";
    return;
  }
  out += '[';
  for (const char c : tokenizer->bytes(token)) {
    if (out.back() != '[') out += ',';
    out += std::to_string(static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  out += ']';
}

void append_named(const text::Tokenizer* tokenizer, core::Token token, float logprob, std::string& out) {
  out += "{\"token\":";
  append_token_name(tokenizer, token, out);
  out += ",\"logprob\":";
  append_float(logprob, out);
  out += ",\"bytes\":";
  append_bytes(tokenizer, token, out);
}

// Calls append(item) for each, with commas between.
template <class Items, class Append>
void append_list(const Items& items, const Append& append, std::string& out) {
  out += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ',';
    first = false;
    append(item);
  }
  out += ']';
}

void append_top(const text::Tokenizer* tokenizer, const core::TokenLogprob* logprob, std::string& out) {
  if (logprob == nullptr) {
    out += "null";
    return;
  }
  std::set<std::string> names;  // ids that share their text would be one member
  out += '{';
  for (const auto& alternative : logprob->top) {
    std::string name = name_of(tokenizer, alternative.token);
    if (!names.insert(name).second) continue;
    if (names.size() > 1) out += ',';
    append_json_string(out, name);
    out += ':';
    append_float(alternative.logprob, out);
  }
  out += '}';
}

std::size_t characters_of(const text::Tokenizer* tokenizer, core::Token token) {
  if (tokenizer == nullptr || tokenizer->is_special(token)) return 0;
  const std::string_view bytes = tokenizer->bytes(token);
  return static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

void append_token_name(const text::Tokenizer* tokenizer, core::Token token, std::string& out) {
  append_json_string(out, name_of(tokenizer, token));
}

void append_float(float value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char number[32];
  std::snprintf(number, sizeof number, "%.9g", static_cast<double>(value));
  out += number;
}

void append_chat_logprobs(const text::Tokenizer* tokenizer, std::span<const core::TokenLogprob> logprobs,
                          std::string& out) {
  const auto alternative = [&](const core::TokenLogprob::Alternative& top) {
    append_named(tokenizer, top.token, top.logprob, out);
    out += '}';
  };
  out += "{\"content\":";
  append_list(
      logprobs,
      [&](const core::TokenLogprob& logprob) {
        append_named(tokenizer, logprob.token, logprob.logprob, out);
        out += ",\"top_logprobs\":";
        append_list(logprob.top, alternative, out);
        out += '}';
      },
      out);
  out += ",\"refusal\":null}";
}

void append_completion_logprobs(const text::Tokenizer* tokenizer, std::span<const ToldToken> tokens,
                                std::size_t& offset, std::string& out) {
  out += "{\"tokens\":";
  append_list(
      tokens, [&](const ToldToken& told) { append_token_name(tokenizer, told.token, out); }, out);
  out += ",\"token_logprobs\":";
  append_list(
      tokens,
      [&](const ToldToken& told) {
        if (told.logprob == nullptr) {
          out += "null";
        } else {
          append_float(told.logprob->logprob, out);
        }
      },
      out);
  out += ",\"top_logprobs\":";
  append_list(
      tokens, [&](const ToldToken& told) { append_top(tokenizer, told.logprob, out); }, out);
  out += ",\"text_offset\":";
  append_list(
      tokens,
      [&](const ToldToken& told) {
        out += std::to_string(offset);
        offset += characters_of(tokenizer, told.token);
      },
      out);
  out += '}';
}

void append_triple(const text::Tokenizer* tokenizer, std::optional<float> logprob, core::Token token, bool texts,
                   std::string& out) {
  out += '[';
  if (logprob) {
    append_float(*logprob, out);
  } else {
    out += "null";
  }
  out += ',';
  out += std::to_string(token);
  out += ',';
  if (texts) {
    append_token_name(tokenizer, token, out);
  } else {
    out += "null";
  }
  out += ']';
}

}  // namespace levada::serve
