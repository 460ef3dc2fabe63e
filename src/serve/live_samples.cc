#include "serve/live_samples.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

#include "base/log.h"
#include "base/random.h"
#include "serve/json_text.h"

namespace levada::serve {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSegments = 16;  // of a full folder
constexpr std::int64_t kLeastSegmentBytes = 4096;
constexpr const char* kNamePattern = "segment-%8lld.jsonl";

struct Segment {
  fs::path path;
  std::int64_t bytes = 0;
};

// By number, ascending.
std::map<std::int64_t, Segment> segments_of(const fs::path& folder) {
  std::map<std::int64_t, Segment> segments;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    long long number = 0;
    if (std::sscanf(entry.path().filename().c_str(), kNamePattern, &number) != 1) continue;
    const auto bytes = entry.file_size(error);
    segments[number] = {entry.path(), error ? 0 : static_cast<std::int64_t>(bytes)};
  }
  return segments;
}

std::int64_t count_lines(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return std::count(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>(), '\n');
}

std::string line_of(std::int64_t segment, std::int64_t line, const std::vector<core::Token>& prompt,
                    const std::vector<core::Token>& answer) {
  char head[64];
  std::snprintf(head, sizeof head,
                "{\"task_id\":\"live-%08lld-%06lld\",\"input_ids\":", static_cast<long long>(segment),
                static_cast<long long>(line));
  std::vector<core::Token> ids = prompt;
  ids.insert(ids.end(), answer.begin(), answer.end());
  std::vector<core::Token> mask(prompt.size(), 0);
  mask.insert(mask.end(), answer.size(), 1);
  std::string text = head;
  text += '[';
  append_json_ids(text, ids);
  text += "],\"loss_mask\":[";
  append_json_ids(text, mask);
  return text + "]}\n";
}

}  // namespace

LiveSamples::LiveSamples(const LiveSamplesOptions& options, Metrics& metrics)
    : options_(options),
      segment_bytes_(std::max(options.max_bytes / kSegments, kLeastSegmentBytes)),
      kept_(metrics.counter("levada:live_samples_total", "Conversations kept for draft training")),
      dropped_waiting_(metrics.counter("levada:live_samples_dropped_total",
                                       "Conversations that were to be kept, or were", {{"reason", "disk too slow"}})),
      dropped_old_(metrics.counter("levada:live_samples_dropped_total", "Conversations that were to be kept, or were",
                                   {{"reason", "older than the folder holds"}})),
      dropped_disk_(metrics.counter("levada:live_samples_dropped_total", "Conversations that were to be kept, or were",
                                    {{"reason", "not written"}})) {}

Result<std::unique_ptr<LiveSamples>> LiveSamples::open(const LiveSamplesOptions& options, Metrics& metrics) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  std::unique_ptr<LiveSamples> samples(new LiveSamples(options, metrics));
  if (const auto there = segments_of(options.folder); !there.empty()) samples->segment_ = there.rbegin()->first;
  LEVADA_RETURN_IF_ERROR(samples->begin_segment());
  samples->thread_ = Thread("levada-samples", [self = samples.get()] { self->run(); });
  LEVADA_LOG_INFO("live samples: a share of ", options.rate, " of the conversations into ", options.folder.string());
  return samples;
}

LiveSamples::~LiveSamples() { mailbox_.close(); }

bool LiveSamples::wants() const {
  constexpr double kAll = 18446744073709551616.0;  // 2^64
  return static_cast<double>(random_word()) < options_.rate * kAll;
}

void LiveSamples::offer(std::vector<core::Token> prompt, std::vector<core::Token> answer) {
  if (waiting_.fetch_add(1) >= kMaxWaiting) {
    --waiting_;
    return dropped_waiting_.add();
  }
  if (!mailbox_.push({std::move(prompt), std::move(answer)})) --waiting_;
}

void LiveSamples::run() {
  std::vector<Sample> samples;
  bool told = false;
  while (mailbox_.take(samples)) {
    for (const Sample& sample : samples) {
      --waiting_;
      const Status written = write(sample);
      (written.ok() ? kept_ : dropped_disk_).add();
      if (!written.ok() && !std::exchange(told, true)) LEVADA_LOG_WARNING("live samples: ", written.message());
      if (written.ok()) told = false;
    }
    samples.clear();
  }
}

Status LiveSamples::begin_segment() {
  make_room(segment_bytes_);
  ++segment_;
  char name[48];
  std::snprintf(name, sizeof name, "segment-%08lld.jsonl", static_cast<long long>(segment_));
  const fs::path path = options_.folder / name;
  file_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  lines_ = bytes_ = 0;
  if (file_.get() < 0) return unavailable("cannot write " + path.string());
  return {};
}

void LiveSamples::make_room(std::int64_t bytes) {
  const auto segments = segments_of(options_.folder);
  std::int64_t held = 0;
  for (const auto& [number, segment] : segments) held += segment.bytes;
  for (const auto& [number, segment] : segments) {
    if (held + bytes <= options_.max_bytes || number == segment_) break;
    std::error_code error;
    const auto lines = static_cast<double>(count_lines(segment.path));
    if (!fs::remove(segment.path, error)) break;
    dropped_old_.add(lines);
    held -= segment.bytes;
  }
}

Status LiveSamples::write(const Sample& sample) {
  std::string line = line_of(segment_, lines_ + 1, sample.prompt, sample.answer);
  const auto size = static_cast<std::int64_t>(line.size());
  if (file_.get() < 0 || (bytes_ > 0 && bytes_ + size > segment_bytes_)) {
    LEVADA_RETURN_IF_ERROR(begin_segment());
    line = line_of(segment_, 1, sample.prompt, sample.answer);
  }
  // One call, so that a reader or a kill sees a whole line or none; half of one (a full disk) ends its segment.
  if (::write(file_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    file_.reset();
    return unavailable("cannot write into " + options_.folder.string());
  }
  ++lines_;
  bytes_ += static_cast<std::int64_t>(line.size());
  return {};
}

}  // namespace levada::serve
