// What: RunCard, what a consumer must know of a run before it can speak to its registry: a small file that the producer
// writes once the plan is fixed and the registry listens.
// Owner: a value.
// Thread: any.
// Invariant: the file is there whole or not at all. It carries no secret.
// Format: control_dir/run.json, docs/formats/run_card.md (version 1).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace levada::consumer {

struct RunCard {
  std::string run_id, store_id;
  std::string contract_digest, source_digest;
  std::string registry_url;        // "http://host:port"
  std::int64_t total_samples = 0;  // positions of the plan
  std::int64_t prompts = 0;        // samples of one epoch
  std::vector<std::int32_t> aux_layer_ids;
  std::int64_t hidden_size = 0;
  std::int64_t aux_width() const { return static_cast<std::int64_t>(aux_layer_ids.size()) * hidden_size; }
  DType dtype = DType::kBF16;  // of hidden_states
  // XXH3-64 of each position's input_ids as they are stored (int64, little-endian).
  std::vector<std::uint64_t> input_hashes;

  std::int64_t epoch_of(std::int64_t position) const { return position / prompts; }
  bool operator==(const RunCard&) const = default;
};

inline constexpr const char* kRunCardName = "run.json";

Status write_run_card(const std::filesystem::path& control_dir, const RunCard& card);
// nullopt if it is not there (yet). kDataLoss naming the field for a file that is no run card.
Result<std::optional<RunCard>> read_run_card(const std::filesystem::path& control_dir);

}  // namespace levada::consumer
