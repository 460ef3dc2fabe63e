#include "http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <limits>
#include <utility>

#include "http/text.h"

namespace levada::http {
namespace beast = boost::beast;
using beast::error_code;
using beast::http::error;
using beast::http::field;

namespace {

constexpr std::size_t kMaxTargetBytes = 8u << 10;
// What a declared length may reserve before the bytes are here.
constexpr std::size_t kMaxBodyReserve = 1u << 20;

std::string_view to_std(beast::string_view text) { return {text.data(), text.size()}; }

bool is_known_method(std::string_view method) {
  for (const std::string_view known : {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "QUERY"})
    if (method == known) return true;
  return false;
}

// The request line ends in a well-formed HTTP version, if not one spoken here.
bool names_http_version(std::string_view bytes) {
  const std::size_t end = bytes.find("\r\n");
  const std::size_t at = bytes.substr(0, end).rfind(" HTTP/");
  if (end == bytes.npos || at == bytes.npos) return false;
  const std::string_view version = bytes.substr(at + 6, end - at - 6);
  const auto is_digit = [](char c) { return '0' <= c && c <= '9'; };
  return version.size() == 3 && is_digit(version[0]) && version[1] == '.' && is_digit(version[2]);
}

}  // namespace

// Fills a Request from Beast's parser events, so that no second copy of the fields is made.
class RequestReader::Parser final : public beast::http::basic_parser<true> {
 public:
  Request request;
  Failure refused;  // status 0: nothing refused
  bool has_request_line = false;
  bool is_http11 = true;
  bool expects_continue = false;

 private:
  void refuse(int status, std::string message, error_code& ec) {
    refused = {status, std::move(message)};
    ec = error::bad_value;
  }

  void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view target, int version,
                       error_code& ec) override {
    has_request_line = true;
    is_http11 = version == 11;
    request.method = to_std(method);
    if (!is_known_method(request.method)) return refuse(501, "unknown method", ec);
    if (target.size() > kMaxTargetBytes) return refuse(414, "the request target is longer than 8192 bytes", ec);
    set_target(to_std(target), ec);
  }

  void set_target(std::string_view target, error_code& ec) {
    if (const std::size_t scheme = target.find("://"); target[0] != '/' && scheme != target.npos) {
      const std::size_t slash = target.find('/', scheme + 3);  // absolute form, as sent to proxies
      target = slash == target.npos ? std::string_view("/") : target.substr(slash);
    }
    target = target.substr(0, target.find('#'));
    if (target.empty() || (target[0] != '/' && target != "*"))
      return refuse(400, "the request target must begin with /", ec);
    const std::size_t mark = std::min(target.find('?'), target.size());
    std::optional<std::string> path = percent_decode(target.substr(0, mark), false);
    auto query = parse_query(target.substr(std::min(mark + 1, target.size())));
    if (!path || !query) return refuse(400, "bad percent encoding in the request target", ec);
    request.path = *std::move(path);
    request.query = *std::move(query);
  }

  void on_field_impl(field id, beast::string_view name, beast::string_view value, error_code& ec) override {
    if (is_header_done()) return;  // trailers are read over
    const std::string_view text = to_std(value);
    const auto [entry, fresh] = request.headers.try_emplace(to_lower(to_std(name)), text);
    if (!fresh) {
      if (id == field::content_length || id == field::host || id == field::transfer_encoding)
        return refuse(400, "the header " + entry->first + " was given more than once", ec);
      entry->second.append(", ").append(text);
    }
    if (id == field::transfer_encoding && !equal_ignoring_case(text, "chunked"))
      return refuse(501, "the only transfer coding understood is chunked", ec);
    if (id == field::expect) {
      if (!equal_ignoring_case(text, "100-continue"))
        return refuse(417, "the only expectation met is 100-continue", ec);
      expects_continue = true;
    }
  }

  void on_header_impl(error_code& ec) override {
    if (is_http11 && !request.headers.contains("host"))
      return refuse(400, "an HTTP/1.1 request needs a Host header", ec);
    if (!is_http11 && request.headers.contains("transfer-encoding"))
      return refuse(400, "HTTP/1.0 has no transfer codings", ec);
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>& length, error_code&) override {
    if (length) request.body.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(*length, kMaxBodyReserve)));
  }
  std::size_t on_body_impl(beast::string_view bytes, error_code&) override {
    request.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes, error_code&) override {
    request.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_response_impl(int, beast::string_view, int, error_code&) override {}
  void on_chunk_header_impl(std::uint64_t, beast::string_view, error_code&) override {}
  void on_finish_impl(error_code&) override {}
};

RequestReader::RequestReader(std::size_t max_header_bytes, std::size_t max_body_bytes)
    : parser_(std::make_unique<Parser>()), max_header_bytes_(max_header_bytes), max_body_bytes_(max_body_bytes) {
  constexpr std::size_t kParserMost = std::numeric_limits<std::uint32_t>::max();
  parser_->header_limit(static_cast<std::uint32_t>(std::min(max_header_bytes, kParserMost)));
  parser_->body_limit(max_body_bytes);
  parser_->eager(false);  // one step at a time, so that the end of the header is seen
}

RequestReader::~RequestReader() = default;

RequestReader::State RequestReader::read(std::string_view bytes, std::size_t& consumed) {
  consumed = 0;
  // Blank lines before a request are left over from clients that end a body with one too many.
  while (!started_ && bytes.substr(consumed, 2) == "\r\n") consumed += 2;
  error_code ec;
  while (consumed < bytes.size()) {
    const std::string_view rest = bytes.substr(consumed);
    if (!started_ && rest == "\r") return State::kNeedMore;
    started_ = true;
    const std::size_t taken = parser_->put(boost::asio::const_buffer(rest.data(), rest.size()), ec);
    consumed += taken;
    if (!header_reported_) header_bytes_ += taken;
    if (ec && ec != error::need_more) return fail(ec, rest);
    const std::size_t waiting = bytes.size() - consumed;
    if (!parser_->is_header_done() && header_bytes_ + waiting > max_header_bytes_) ec = error::header_limit;
    // A chunk's extension or a trailer is held whole before it is parsed: the same limit bounds it.
    if (parser_->is_header_done() && ec == error::need_more && waiting > max_header_bytes_) ec = error::header_limit;
    if (header_bytes_ > max_header_bytes_) ec = error::header_limit;
    if (ec == error::header_limit) return fail(ec, rest);
    if (parser_->is_done()) return State::kDone;
    if (parser_->is_header_done() && !header_reported_) {
      header_reported_ = true;
      return State::kHeaderDone;
    }
    if (ec == error::need_more) break;
  }
  return State::kNeedMore;
}

RequestReader::State RequestReader::fail(const error_code& ec, std::string_view bytes) {
  if (parser_->refused.status != 0) {
    failure_ = parser_->refused;
  } else if (ec == error::header_limit && !parser_->has_request_line &&
             bytes.substr(0, max_header_bytes_).find("\r\n") == bytes.npos) {
    failure_ = {414, "the request line is longer than " + std::to_string(max_header_bytes_) + " bytes"};
  } else if (ec == error::header_limit) {
    failure_ = {431, "the request header is longer than " + std::to_string(max_header_bytes_) + " bytes"};
  } else if (ec == error::body_limit) {
    failure_ = {413, "the request body is longer than the limit of " + std::to_string(max_body_bytes_) + " bytes"};
  } else if (ec == error::bad_version && names_http_version(bytes)) {
    failure_ = {505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  } else {
    failure_ = {400, "malformed HTTP request: " + ec.message()};
  }
  return State::kFailed;
}

bool RequestReader::expects_continue() const { return parser_->expects_continue && parser_->is_http11; }
bool RequestReader::keep_alive() const { return parser_->keep_alive(); }
bool RequestReader::is_http10() const { return !parser_->is_http11; }
Request& RequestReader::request() { return parser_->request; }

}  // namespace levada::http
