#include "up/live_spool.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "base/hash.h"

namespace levada::up {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::optional<LiveSample> sample_of(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    LiveSample sample;
    sample.task_id = json.at("task_id").get<std::string>();
    sample.input_ids = json.at("input_ids").get<std::vector<std::int32_t>>();
    const auto mask = json.at("loss_mask").get<std::vector<std::int32_t>>();
    if (mask.size() != sample.input_ids.size()) return std::nullopt;
    sample.prompt_tokens = std::find(mask.begin(), mask.end(), 1) - mask.begin();
    sample.line = line;
    return sample;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

// Of the tokens, not of the sample's name.
std::uint64_t content_of(const std::string& line) {
  const std::size_t ids = std::min(line.find("\"input_ids\""), line.size());
  return hash64(std::as_bytes(std::span(line).subspan(ids)));
}

bool has_room(const LiveSample& sample, std::int64_t max_length) {
  constexpr std::int64_t kLeastAnswer = 2;  // supervised tokens, as the producer wants them
  const auto length = static_cast<std::int64_t>(sample.input_ids.size());
  return sample.prompt_tokens >= 1 && std::min(length, max_length) - sample.prompt_tokens >= kLeastAnswer;
}

std::vector<std::string> whole_lines(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line) && !in.eof();) lines.push_back(std::move(line));
  return lines;
}

std::vector<fs::path> segments_of(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Spool read_spool(const fs::path& folder, const SpoolRules& rules, std::size_t most_train, std::size_t most_held_out) {
  std::vector<std::string> train, held_out;
  std::set<std::uint64_t> seen;
  for (const fs::path& file : segments_of(folder)) {
    for (std::string& line : whole_lines(file)) {
      const std::uint64_t content = content_of(line);
      if (!seen.insert(content).second) continue;
      const double share = static_cast<double>(content >> 11) * 0x1p-53;
      (share < rules.held_out_share ? held_out : train).push_back(std::move(line));
    }
  }
  Spool spool;
  const auto take = [&](const auto& lines, std::size_t most, std::vector<LiveSample>& into) {
    for (auto line = lines.begin(); line != lines.end() && into.size() < most; ++line) {
      auto sample = sample_of(*line);
      if (sample && has_room(*sample, rules.max_length)) into.push_back(std::move(*sample));
    }
  };
  std::reverse(train.begin(), train.end());
  take(train, most_train, spool.train);
  std::reverse(spool.train.begin(), spool.train.end());
  take(held_out, most_held_out, spool.held_out);
  return spool;
}

std::vector<LiveSample> read_samples(const fs::path& file) {
  std::vector<LiveSample> samples;
  for (const std::string& line : whole_lines(file)) {
    if (auto sample = sample_of(line)) samples.push_back(std::move(*sample));
  }
  return samples;
}

}  // namespace levada::up
