// What: LiveSamples, a bounded folder of finished conversations for draft training, sampled from live traffic.
// Owner: whoever composes the process; must outlive the Api.
// Thread: wants() and offer() from any thread, neither blocks; files are written by a thread of its own.
// Invariant: a line is in a file whole or, of a process that was killed, last and without its newline; the folder's segments
// stay under the given bytes: the oldest is deleted for a new one. What is dropped is counted with a reason.
// Format: docs/formats/live-samples.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mailbox.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/ids.h"

namespace levada::serve {

struct LiveSamplesOptions {
  std::filesystem::path folder;
  double rate = 0;             // share of the conversations that are kept
  std::int64_t max_bytes = 0;  // of all segments
};

class LiveSamples {
 public:
  static constexpr int kMaxWaiting = 8192;  // conversations between offer() and the disk

  // Makes the folder; goes on behind the segments it holds. kUnavailable naming the folder if it can't be written.
  static Result<std::unique_ptr<LiveSamples>> open(const LiveSamplesOptions& options, Metrics& metrics);
  ~LiveSamples();  // writes what was offered

  // Draws whether the next conversation is to be offered.
  bool wants() const;
  void offer(std::vector<core::Token> prompt, std::vector<core::Token> answer);

 private:
  struct Sample {
    std::vector<core::Token> prompt, answer;
  };

  LiveSamples(const LiveSamplesOptions& options, Metrics& metrics);
  void run();
  Status write(const Sample& sample);
  Status begin_segment();
  // Deletes the oldest until so many more bytes fit.
  void make_room(std::int64_t bytes);

  const LiveSamplesOptions options_;
  const std::int64_t segment_bytes_;
  Counter &kept_, &dropped_waiting_, &dropped_old_, &dropped_disk_;
  std::atomic<int> waiting_ = 0;
  std::int64_t segment_ = 0, lines_ = 0, bytes_ = 0;  // of the segment being written
  Fd file_;
  Mailbox<Sample> mailbox_;
  Thread thread_;
};

}  // namespace levada::serve
