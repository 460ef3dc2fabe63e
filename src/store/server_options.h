// What: ServerOptions, what a store's server allows, and StoreServerStats, what it has counted.
// Owner: whoever starts the StoreServer; the server keeps its own copy.
// Thread: options don't change; counters are read from any thread.
// Invariant: every limit a peer can run into stands here.
// Each default is written here and nowhere else.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace levada::store {

struct ServerOptions {
  std::string tcp_url;  // "tcp://127.0.0.1:0"; empty: no TCP
  std::string shm_url;  // "shm:///run/levada.sock", nvlink:// for an arena on a device; empty: none
  std::string ucx_url;  // "ucx://127.0.0.1:0": as TCP, and larger objects travel over UCX; empty: none
  std::string token;    // what clients must show; may be empty for shared memory alone
  std::int64_t max_connections = 256;
  std::int64_t max_leases_per_client = 4096;
  std::int64_t hello_us = 5'000'000;           // from connecting to a full hello
  std::int64_t frame_us = 10'000'000;          // from the first byte of a request, or of a reply, to its last …
  std::int64_t least_bytes_per_s = 1'000'000;  // … plus the time its body takes at this rate
  std::int64_t max_wait_us = 60'000'000;       // the longest a put may wait for space
};

struct StoreServerStats {
  std::atomic<std::uint64_t> accepted{0}, closed{0}, refused_full{0};
  std::atomic<std::uint64_t> bad_frames{0}, bad_tokens{0}, timeouts{0};
  std::atomic<std::uint64_t> puts{0}, gets{0}, received_bytes{0}, sent_bytes{0};
};

}  // namespace levada::store
