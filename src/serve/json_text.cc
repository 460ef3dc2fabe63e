#include "serve/json_text.h"

#include "text/tokenizer.h"

namespace levada::serve {

namespace {

// Escapes text known to be valid UTF-8: runs of plain bytes are copied at once.
void append_escaped_utf8(std::string& out, std::string_view text) {
  std::size_t plain_from = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text, plain_from, i - plain_from);
    plain_from = i + 1;
    switch (byte) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: {
        constexpr char kHex[] = "0123456789abcdef";
        out += "\\u00";
        out += kHex[byte >> 4];
        out += kHex[byte & 15];
      }
    }
  }
  out.append(text, plain_from);
}

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  for (;;) {
    const std::size_t bad = text::find_invalid_utf8(text);
    append_escaped_utf8(out, text.substr(0, bad));
    if (bad == std::string_view::npos) return;
    out += "\xEF\xBF\xBD";
    text.remove_prefix(bad + 1);
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

void append_json_ids(std::string& out, const std::vector<std::int32_t>& ids) {
  bool comma = !out.empty() && out.back() >= '0' && out.back() <= '9';
  for (const std::int32_t id : ids) {
    if (comma) out += ',';
    out += std::to_string(id);
    comma = true;
  }
}

}  // namespace levada::serve
