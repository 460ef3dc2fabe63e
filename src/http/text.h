// What: the words of HTTP/1.1: reason phrases, response heads, chunk framing, percent-decoding, JSON error bodies.
// Owner: none; pure functions.
// Thread: any.
// Invariant: nothing a client sent is echoed unescaped.
// Format: RFC 9110 and RFC 9112.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace levada::http {

// "Not Found"; empty for a status without one here.
std::string_view reason_of(int status);

enum class BodyFraming { kLength, kChunked, kUntilClose };

struct ResponseHead {
  int status = 200;
  std::string_view content_type;  // empty: no Content-Type
  BodyFraming framing = BodyFraming::kLength;
  std::size_t content_length = 0;  // kLength only
  bool keep_alive = true;
  std::string_view extra_lines;  // complete header lines, each with its CRLF
  std::string_view common_lines;
};

// Appends status line, headers and the blank line.
void append_head(std::string& out, const ResponseHead& head);
// Appends one chunk of a chunked body. REQUIRES: bytes is not empty (an empty chunk would end the body).
void append_chunk(std::string& out, std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// The `type` of an error body, for every status the server answers with; docs/api.md lists them.
std::string_view error_type(int status);
// {"error":{"message":…,"type":…,"param":null,"code":status}}
std::string error_body(int status, std::string_view message);

// nullopt if a % is not followed by two hex digits. `plus_is_space` for query strings.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space);
// "a=1&b=x%20y"; a name given twice keeps its last value. nullopt on bad percent encoding.
std::optional<std::map<std::string, std::string>> parse_query(std::string_view text);

// ASCII only, as header names and tokens are.
std::string to_lower(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace levada::http
