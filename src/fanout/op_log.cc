#include "fanout/op_log.h"

#include <charconv>

#include "base/check.h"
#include "base/overloaded.h"

namespace levada::fanout {

std::string encode_reply(const Reply& reply) {
  return std::visit(Overloaded{[](const CursorReply& r) { return "cursor " + std::to_string(r.cursor); },
                               [](const AbandonReply& r) { return "released " + std::to_string(r.released); },
                               [](const EntryReply& r) { return "state " + std::string(to_string(r.state)); },
                               [](const OkReply&) { return std::string("ok"); },
                               [](const CompleteReply& r) { return "complete " + std::to_string(r.skipped_tail); },
                               [](const auto&) {
                                 LEVADA_CHECK(false, "the reply of an operation that has no number");
                                 return std::string();
                               }},
                    reply);
}

std::optional<Reply> decode_reply(std::string_view text) {
  if (text == "ok") return OkReply{};
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const std::string_view kind = text.substr(0, space);
  const std::string_view rest = text.substr(space + 1);
  if (kind == "state") {
    const auto state = named<EntryState>(rest);
    return state ? std::optional<Reply>(EntryReply{*state}) : std::nullopt;
  }
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || end != rest.data() + rest.size()) return std::nullopt;
  if (kind == "cursor") return CursorReply{number};
  if (kind == "released") return AbandonReply{number};
  if (kind == "complete") return CompleteReply{true, number};
  return std::nullopt;
}

}  // namespace levada::fanout
