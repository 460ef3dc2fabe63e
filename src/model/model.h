// What: Model, a loaded decoder-only transformer that computes one layer at a time, and the KV bytes it reads and
// writes.
// Mental model: Model = weights, immutable, one per worker. Forward = one step's activations: begin() embeds the step's
// tokens, layer(l) runs decoder layer l over the paged cache, sample() gives the rows that need a token theirs.
// Owner: the engine worker owns Model and KvPool; a Forward is owned by its step and must not outlive either.
// Thread: the worker's.
// Invariant: layer(0..L-1) in order, each once. After layer(l), hidden() is the output of decoder layer l (0-based; the
// last one is the state feeding the final norm), the convention of every capture.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/kv_layout.h"
#include "core/model_info.h"
#include "core/step_plan.h"
#include "device/device.h"
#include "model/draft_config.h"

namespace levada::model {

inline constexpr std::int32_t kMaxPageSizeTokens = 1024;

// The draft that there is room for, in pages and on the device: one fits that is of this kind (which decides what a cached
// prefix is) and has no larger number.
struct DraftRoom {
  std::int64_t layers = 0, kv_width = 0;  // kv_heads * head_dim
  std::int64_t features = 0;              // captured layers * hidden
  std::int64_t parameters = 0, block_size = 0;
  DraftKind kind = DraftKind::kDflash;
};
DraftRoom room_for(const DraftConfig& config);

struct ModelOptions {
  std::string dtype = "auto";           // weights: float32, bfloat16; auto: as stored (on CUDA bfloat16 for GGUF)
  std::string kv_cache_dtype = "auto";  // auto: bfloat16 for bfloat16 weights, float32 for float32. CUDA: fp8_e4m3 (the
  // checkpoint's scales for each layer, or none), fp8_e4m3_page (scales of each page)
  std::int32_t page_size_tokens = 16;
  std::int32_t context_length_tokens = 0;  // 0: the checkpoint's
  int threads = 0;                         // CPU kernels; 0: all cores of the affinity mask
  // CUDA: where the warm-up manifest lies (model/warmup_manifest.h). Empty: no manifest, and nothing is measured.
  std::string warmup_folder;
  // What drafts this model may ever be given: their planes are part of the KV layout. Unset: none.
  std::optional<DraftRoom> draft_room;
};

// KV bytes of one rank: for each plane of the layout, one buffer over all pages and owning layers.
class KvPool {
 public:
  virtual ~KvPool() = default;
  virtual const core::KvLayout& layout() const = 0;
  virtual std::int32_t pages() const = 0;
  // [pages, page_size, elements_per_token] of one plane in one layer, or [pages, elements_per_page].
  virtual device::TensorView plane(int plane, int layer) const = 0;
  // Fills a page's bytes in every plane with 0xFF (NaN), for tests that prove freed pages aren't read.
  virtual void poison(std::int32_t page) = 0;
};

struct StepTokens {
  std::vector<core::Token> sampled;   // one per plan.samples
  std::vector<core::Token> proposed;  // see core::StepResult
};

// Tokens that may still be on their way from the device.
class SampledTokens {
 public:
  virtual ~SampledTokens() = default;
  // Blocks until they are here; any thread, once. The device's error if the step failed on it.
  virtual Result<StepTokens> wait() = 0;
};
std::unique_ptr<SampledTokens> ready_tokens(StepTokens tokens);

// A draft's weights in the form its target's device takes, checked against that target (docs/models.md, "DFlash drafts",
// "EAGLE-3 drafts").
class Draft {
 public:
  virtual ~Draft() = default;
  virtual const DraftConfig& config() const = 0;
  virtual std::int64_t bytes() const = 0;
};

// Hidden states where they were computed: ready in the order of `stream`, on which what the step launches next
// overwrites them.
struct DeviceRows {
  device::TensorView rows;
  device::Stream* stream;
};

class Forward {
 public:
  virtual ~Forward() = default;
  virtual Status layer(int layer) = 0;
  // All of them at once, where nothing has to happen in between; maybe as a recorded graph.
  virtual Status all_layers() = 0;
  // [rows, hidden_size] f32 (CPU) or the compute dtype (CUDA), valid until the next call.
  virtual device::TensorView hidden() const = 0;
  // Rows [first, first + count) of hidden(), or, once the last layer has run, of what the final norm makes of them.
  virtual Result<DeviceRows> device_rows(std::int32_t first, std::int32_t count, bool final_norm) = 0;
  // The same in host memory: [count, hidden_size] f32, valid until the next call.
  virtual Result<device::TensorView> host_rows(std::int32_t first, std::int32_t count, bool final_norm) = 0;
  // Final norm and lm_head for the given rows. f32 [rows.size(), vocab_size] in host memory, valid until the next call.
  virtual Result<device::TensorView> logits(std::span<const std::int32_t> rows) = 0;
  // After the last layer: chooses a token per plan.samples, the same on every device but for rounding; then the draft, if
  // there is one, proposes what the plan's slices ask for. hidden() and logits() are as before afterwards.
  virtual Result<std::unique_ptr<SampledTokens>> sample() = 0;
};

// Memory of the model's device, by purpose.
struct MemoryUse {
  std::string what;
  std::int64_t bytes = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const core::ModelInfo& info() const = 0;
  // That computes it.
  virtual const device::Device& device() const = 0;
  virtual const core::KvLayout& kv_layout() const = 0;
  virtual Result<std::unique_ptr<KvPool>> make_kv_pool(std::int32_t pages) = 0;
  // True if steps may be begun before the tokens of the step before have been waited for: then begin() itself takes
  // plan.future_tokens from where that step left them on the device. Else all of plan.tokens must be known.
  virtual bool runs_ahead() const = 0;
  // `folder`: config.json and model.safetensors as SpecForge exports and SGLang loads them. Any thread, beside steps.
  // kNotFound, kDataLoss naming the tensor, kInvalidArgument naming the field that doesn't fit the target or isn't
  // supported, kResourceExhausted with the numbers of a draft larger than ModelOptions::draft_room.
  virtual Result<std::shared_ptr<const Draft>> load_draft(const std::filesystem::path& folder) = 0;
  // `plan` and its arrays must outlive the Forward; not the tokens that sample() gave. `draft`: this model's, the one that
  // plan.draft names; null without. Another one than in the step before takes over here: nothing waits for it.
  virtual Result<std::unique_ptr<Forward>> begin(const core::StepPlan& plan, KvPool& pool,
                                                 const std::shared_ptr<const Draft>& draft) = 0;
  Result<std::unique_ptr<Forward>> begin(const core::StepPlan& plan, KvPool& pool) {
    return begin(plan, pool, nullptr);
  }
  // Called by the thread that will begin every step from then on, which may be given a core of its own.
  virtual void settle_thread() {}
  // Asked after a step that failed: the error that its device keeps, so that every later step will fail; else ok.
  virtual Status health() const { return {}; }
  // What the model holds of its device now, the pools it made left out; for the report at start-up.
  virtual std::vector<MemoryUse> memory() const = 0;
  // Name of the kernels in use, for /server_info ("cpu avx512, 2 threads").
  virtual std::string backend() const = 0;
};

// `path`: a GGUF file or a Hugging Face folder. kNotFound, kDataLoss (damaged), kInvalidArgument (unsupported
// architecture, with the list of supported ones) or kResourceExhausted (too little memory, with both numbers).
Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& path, const ModelOptions& options,
                                          device::Device& device);

}  // namespace levada::model
