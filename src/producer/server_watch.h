// What: ServerWatch, what the producer knows of one capture server: whether it answers, and which life of its arena it is
// in.
// Owner: the Producer; the workers of that server share it.
// Thread: any; one mutex, never held over a call.
// Invariant: an arena's new life is told to the registry before anything captured in it is adopted, so that no ref of the
// old one is granted again.
//
//   unknown ──described──> up ──a call failed──> down ──described──> up
//                           └── `failures` calls in a row ──> dropped ──described in a new life──> up
//   unknown, down ──no answer for outage_us──> gone: its memory and all objects are taken for lost
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "fanout/registry_api.h"
#include "producer/capture_call.h"
#include "producer/capture_server.h"

namespace levada::producer {

class ServerWatch {
 public:
  enum class State : std::uint8_t { kUnknown, kUp, kDown, kDropped, kGone };
  struct Options {
    std::int64_t failures = 3;             // capture calls in a row
    std::int64_t outage_us = 120'000'000;  // without an answer
    StoreChoice store = StoreChoice::kAuto;
  };

  ServerWatch(std::string url, const CaptureContract& contract, Options options)
      : url_(std::move(url)), contract_(contract), options_(options) {}

  const std::string& url() const { return url_; }
  State state() const;
  // Its workers may claim captures.
  bool is_up() const { return state() == State::kUp; }
  bool is_gone() const { return state() == State::kGone; }
  // No capture will come from it, unless it begins a new life.
  bool is_given_up() const { return state() == State::kGone || state() == State::kDropped; }
  // Where its objects are; empty until it was described.
  std::string store_url() const;
  std::string last_error() const;

  // Asks the server what it is and tells the registry if its arena began anew. kUnavailable if it does not answer (after
  // outage_us it is gone), kFailedPrecondition: it is not a capture server for this run, which waiting won't mend.
  Status describe(CaptureServer& server, fanout::RegistryApi& registry, std::int64_t timeout_us, std::int64_t now_us);
  // A capture's reply came from this arena.
  Status on_captured(const core::SampleRef& ref, fanout::RegistryApi& registry);
  // A capture call failed as a whole.
  void on_failed_call(const std::string& error);

 private:
  Status check(const CaptureSide& side) const;
  Status learn(const std::string& store_url, std::uint64_t incarnation, fanout::RegistryApi& registry);
  Status on_silence(const Status& why, fanout::RegistryApi& registry, std::int64_t now_us);

  const std::string url_;
  const CaptureContract& contract_;
  const Options options_;
  mutable std::mutex mutex_;
  State state_ = State::kUnknown;
  std::int64_t failed_calls_ = 0;      // in a row
  std::int64_t silent_since_us_ = -1;  // -1: it answered last time, or was never asked
  std::string last_error_ = "it was never asked";
  std::string store_url_;
  std::uint64_t incarnation_ = 0;
};

}  // namespace levada::producer
