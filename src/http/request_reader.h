// What: RequestReader, bytes of one HTTP/1.x request in, a Request or the status that refuses it out.
// Owner: one Connection; a new reader for each request.
// Thread: the I/O thread.
// Invariant: never holds more than the limits allow; after a failure or completion it takes no more bytes.
// Strict where leniency gets requests smuggled: bare LF, two lengths, unknown codings and bad escapes are refused.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "http/server.h"

namespace boost::system {
class error_code;
}

namespace levada::http {

class RequestReader {
 public:
  enum class State { kNeedMore, kHeaderDone, kDone, kFailed };

  struct Failure {
    int status = 0;  // 400, 413, 414, 417, 431, 501, 505
    std::string message;
  };

  RequestReader(std::size_t max_header_bytes, std::size_t max_body_bytes);
  ~RequestReader();

  // Takes what it can from the front of `bytes` and says how much through `consumed`; the rest must come again with
  // more behind it. kHeaderDone is answered once, when a body is still to come.
  State read(std::string_view bytes, std::size_t& consumed);

  // The first byte of a request has been taken or is held by the caller.
  bool started() const { return started_; }
  // After kHeaderDone: the client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;
  // After kHeaderDone, kDone or a failure later than that.
  bool keep_alive() const;
  bool is_http10() const;
  const Failure& failure() const { return failure_; }
  // After kHeaderDone: everything but the body. After kDone: all of it, to be moved from.
  Request& request();

 private:
  class Parser;
  State fail(const boost::system::error_code& error, std::string_view bytes);

  std::unique_ptr<Parser> parser_;
  std::size_t max_header_bytes_;
  std::size_t max_body_bytes_;
  std::size_t header_bytes_ = 0;
  bool started_ = false;
  bool header_reported_ = false;
  Failure failure_;
};

}  // namespace levada::http
