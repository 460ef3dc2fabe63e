// What: from engine options to a loaded rank: device, model, KV pool, tokenizer.
// Owner: the caller owns everything returned.
// Thread: start-up only.
// Invariant: every failure is a Status whose sentence names the option, file or number at fault and the remedy.
#pragma once

#include <filesystem>
#include <memory>

#include "base/status.h"
#include "device/device.h"
#include "engine/options.h"
#include "engine/worker.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace levada::cli {

struct Engine {
  std::unique_ptr<device::Device> device;  // outlives the model
  std::unique_ptr<model::Model> model;
  std::unique_ptr<model::KvPool> pool;
};

// The room that drafts are given; unset without either option.
Result<std::optional<model::DraftRoom>> draft_room(const engine::Options& options);

Result<Engine> open_engine(const engine::Options& options);

// The tokenizer that belongs to `model_path`, or the one asked for in `options`.
Result<std::unique_ptr<text::Tokenizer>> open_tokenizer(const std::filesystem::path& model_path,
                                                        const engine::Options& options);

// What /model_info names to clients that count tokens for themselves: a folder transformers can load. A GGUF's tokenizer
// is written beside the warm-up manifest first, once per tokenizer; where that can't be, it is the container itself.
std::string tokenizer_folder(const std::filesystem::path& model_path, const engine::Options& options);

}  // namespace levada::cli
