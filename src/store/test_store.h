// What: StoreFixture, an arena with its server and one client of any backend, for the store's tests.
// Owner: each test.
// Thread: the test's; the server has its own.
// Invariant: nothing here waits longer than ten seconds; everything listens at loopback or in a folder of its own.
// Time is real: what is measured by the clock in these tests is short.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/cpu_device.h"
#include "store/arena.h"
#include "store/local_store.h"
#include "store/open_store.h"
#include "store/store_server.h"
#include "support/temporary_folder.h"

namespace levada::store {

inline constexpr char kToken[] = "correct horse";

inline std::vector<std::byte> pattern(std::size_t size, unsigned seed = 1) {
  // By words: instrumented builds count every access.
  std::vector<std::uint64_t> words(size / 8 + 1);
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = (i + 1) * 0x9E3779B97F4A7C15 + std::uint64_t{seed} * 0x0101010101010101;
  const auto bytes = std::as_bytes(std::span(words)).first(size);
  return {bytes.begin(), bytes.end()};
}

using test::TemporaryFolder;

inline std::unique_ptr<Arena> make_arena(const Clock& clock, std::uint64_t bytes, std::uint32_t max_objects = 1024,
                                         device::Device* device = nullptr) {
  auto arena = Arena::create({.bytes = bytes, .max_objects = max_objects, .prefault = false, .device = device}, clock);
  LEVADA_CHECK(arena.ok(), arena.status().to_string().c_str());
  return *std::move(arena);
}

// An arena and the server in front of it, which can be ended and begun again at the same addresses.
class ServedArena {
 public:
  // Over UCX only if the options ask for it. `device`: where the arena lies, and what its clients open nvlink:// with;
  // null is host memory.
  explicit ServedArena(std::uint64_t bytes = 8 << 20, ServerOptions options = {}, device::Device* device = nullptr)
      : options_(options), bytes_(bytes), device_(device) {
    options_.tcp_url = "tcp://127.0.0.1:0";
    options_.shm_url = (device == nullptr ? "shm://" : "nvlink://") + (folder_.path() / "store.sock").string();
    options_.token = kToken;
    start();
    options_.tcp_url = server->tcp_url();
    options_.ucx_url = server->ucx_url();
  }
  void start() {
    arena = make_arena(clock, bytes_, 1024, device_);
    auto started = StoreServer::start(*arena, options_);
    LEVADA_CHECK(started.ok(), started.status().to_string().c_str());
    server = *std::move(started);
  }
  void stop() {
    server.reset();
    arena.reset();
  }
  std::unique_ptr<ObjectStore> client(const std::string& url, std::int64_t timeout_us = 10'000'000) {
    auto store = open_store(url, kToken, {.timeout_us = timeout_us, .device = device_}, clock);
    LEVADA_CHECK(store.ok(), store.status().to_string().c_str());
    return *std::move(store);
  }
  // Waits, ten seconds at most, until `done` says so.
  template <class Done>
  bool eventually(Done done) {
    for (int turn = 0; turn < 10'000; ++turn) {
      if (done()) return true;
      ::usleep(1000);
    }
    return false;
  }

  SystemClock clock;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<StoreServer> server;

 private:
  TemporaryFolder folder_;
  ServerOptions options_;
  std::uint64_t bytes_;
  device::Device* device_;
};

}  // namespace levada::store
