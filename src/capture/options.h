// What: the options of a server that captures; defaults are written here and nowhere else.
// Owner: cli fills it from flags and recipe.
// Thread: immutable after start.
// Invariant: names that SpecForge's servers have are spelt as there.
// The capture token is a secret and comes from the environment: SGLANG_SPEC_CAPTURE_TOKEN.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"

namespace levada::capture {

struct Options {
  bool enable_spec_capture = false;
  std::string spec_capture_store_id = "specforge-run";
  std::string spec_capture_aux_layer_ids;  // "1,9,17"; empty: each item names its own
  std::int64_t spec_capture_max_sample_bytes = std::int64_t{1} << 30;
  std::int64_t capture_space_wait_s = 30;
};

void describe(OptionTable& table, Options& options);

// The numbers of spec_capture_aux_layer_ids. kInvalidArgument naming the option for anything else, or a layer that the
// model lacks.
Result<std::vector<std::int32_t>> aux_layers(const Options& options, std::int32_t layers);

}  // namespace levada::capture
