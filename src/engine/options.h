// What: options of the engine: which model, on what, and how much KV it may hold.
// Owner: cli fills it from flags and recipe; defaults are written here and nowhere else.
// Thread: immutable after start.
// Invariant: names are SGLang's flag spellings with underscores where SGLang has the option.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"

namespace levada::engine {

struct Options {
  std::string model_path = "smollm2";
  std::string tokenizer_path;  // empty: the model's own
  std::string device = "cpu";
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::int64_t page_size = 16;      // tokens
  std::int64_t context_length = 0;  // tokens; 0: the checkpoint's
  std::int64_t threads = 0;         // CPU kernels; 0: every core this process may use
  // A draft's folder, loaded before the server is ready; and the config.json (or its folder) of the largest one that may
  // come later, which sizes the KV planes of drafts. Without the second the first does; without both there are none.
  std::string speculative_draft_model_path, speculative_draft_room;
  std::string warmup_folder;                     // CUDA; empty: ~/.cache/levada; "none": nothing is measured or kept
  std::optional<std::int64_t> max_total_tokens;  // KV pool size in tokens; unset: from memory
  // Share of the memory left after the weights that the KV pool may take; unset: 0.5 on the CPU, of at most eight whole
  // contexts; 0.9 on CUDA, where the memory is the engine's alone.
  std::optional<double> mem_fraction_static;
};

void describe(OptionTable& table, Options& options);

}  // namespace levada::engine
