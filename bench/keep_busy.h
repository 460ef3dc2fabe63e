// What: KeepBusy, a client of sixteen connections that sends one request after the other on each and waits for the whole answer.
// Owner: a bench.
// Thread: the caller's.
// Invariant: no request is under way between two calls of run(). The answer's last bytes tell its end; nothing else is read.
// No format of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"

namespace levada::bench {

class KeepBusy {
 public:
  static constexpr int kConnections = 16;

  // `request` is sent as it is; its answer ends with `last_bytes`. REQUIRES: a server on the loopback's port.
  KeepBusy(std::uint16_t port, std::string request, std::string last_bytes);

  // Requests answered in full, at least `count`. Ends the process if the server hangs or closes.
  int run(int count);

 private:
  void begin(std::uint32_t index);
  bool receive(std::uint32_t index);

  std::string request_, last_bytes_;
  Fd epoll_;
  std::vector<Fd> sockets_;
  std::vector<std::string> tails_;  // of what has come on each
  std::vector<char> buffer_;
};

std::string get_request(const std::string& path);
std::string post_request(const std::string& path, const std::string& json);

}  // namespace levada::bench
