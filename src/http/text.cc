#include "http/text.h"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "base/check.h"

namespace levada::http {
namespace {

char lower(char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

int hex_digit(char c) {
  if ('0' <= c && c <= '9') return c - '0';
  const char l = lower(c);
  return 'a' <= l && l <= 'f' ? l - 'a' + 10 : -1;
}

void append_number(std::string& out, std::size_t number, int base = 10) {
  char buffer[32];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, number, base).ptr);
}

// "Date: Sun, 29 Nov 2026 18:26:14 GMT\r\n", rebuilt at most once a second and thread.
std::string_view date_line() {
  thread_local std::time_t built_for = -1;
  thread_local char line[64];
  thread_local std::size_t length = 0;
  const std::time_t now = std::time(nullptr);
  if (now != built_for) {
    std::tm utc{};
    gmtime_r(&now, &utc);
    length = std::strftime(line, sizeof line, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &utc);
    built_for = now;
  }
  return {line, length};
}

}  // namespace

std::string_view reason_of(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return {};
  }
}

void append_head(std::string& out, const ResponseHead& head) {
  out += "HTTP/1.1 ";
  append_number(out, static_cast<std::size_t>(head.status));
  out += ' ';
  out += reason_of(head.status);
  out += "\r\n";
  out += date_line();
  if (!head.content_type.empty()) {
    out += "Content-Type: ";
    out += head.content_type;
    out += "\r\n";
  }
  // A 204 or 304 has no body by definition and must not announce one.
  if (head.framing == BodyFraming::kChunked) {
    out += "Transfer-Encoding: chunked\r\n";
  } else if (head.framing == BodyFraming::kLength && head.status != 204 && head.status != 304) {
    out += "Content-Length: ";
    append_number(out, head.content_length);
    out += "\r\n";
  }
  out += head.extra_lines;
  out += head.common_lines;
  // Said outright in both senses: HTTP/1.0 clients need "keep-alive", HTTP/1.1 ones "close".
  out += head.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

void append_chunk(std::string& out, std::string_view bytes) {
  LEVADA_CHECK(!bytes.empty(), "an empty chunk would end the body");
  append_number(out, bytes.size(), 16);
  out += "\r\n";
  out += bytes;
  out += "\r\n";
}

std::string_view error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 409: return "conflict_error";
    case 413: return "PayloadTooLargeError";  // SGLang's name for it
    case 429: return "rate_limit_error";
    case 499: return "aborted";
    case 501:  // what the client used is unknown here; trying again won't help
    case 505: return "invalid_request_error";
    case 503: return "service_unavailable_error";
    default: return status >= 500 ? "internal_server_error" : "invalid_request_error";
  }
}

std::string error_body(int status, std::string_view message) {
  std::string body = "{\"error\":{\"message\":\"";
  for (const char c : message) {
    if (c == '"' || c == '\\') body += '\\';
    // Control characters and stray bytes of what a client sent may not stand in JSON; our own words are ASCII.
    const auto byte = static_cast<unsigned char>(c);
    body += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  body += "\",\"type\":\"";
  body += error_type(status);
  body += "\",\"param\":null,\"code\":";
  append_number(body, static_cast<std::size_t>(status));
  body += "}}";
  return body;
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

std::optional<std::map<std::string, std::string>> parse_query(std::string_view text) {
  std::map<std::string, std::string> query;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const std::size_t equals = std::min(pair.find('='), pair.size());
    std::optional<std::string> name = percent_decode(pair.substr(0, equals), true);
    std::optional<std::string> value = percent_decode(pair.substr(std::min(equals + 1, pair.size())), true);
    if (!name || !value) return std::nullopt;
    query[*std::move(name)] = *std::move(value);
  }
  return query;
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace levada::http
