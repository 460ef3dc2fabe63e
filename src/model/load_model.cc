#include <sched.h>

#include "base/log.h"
#include "device/module.h"
#include "model/checkpoint_source.h"
#include "model/decoder_model.h"
#include "model/draft_checkpoint.h"

namespace levada::model {
namespace {

constexpr const char* kByPage = "fp8_e4m3_page";  // of kv_cache_dtype
constexpr std::int64_t kMinContextTokens = 2;     // one of a prompt, one of its answer

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

Result<DType> parse_dtype(const std::string& text, const char* option, DType automatic, bool cuda) {
  if (text == "auto") return automatic;
  if (text == "float32") return DType::kF32;
  if (text == "bfloat16") return DType::kBF16;
  if (text == "float16" && cuda) return DType::kF16;
  const bool kv = std::string_view(option) == "kv_cache_dtype";
  if (cuda && kv && (text == "fp8_e4m3" || text == kByPage)) return DType::kF8E4M3;
  return invalid_argument("\"" + text + "\" is not supported" + (cuda ? "" : " on the CPU") + "; auto, float32" +
                              (cuda ? ", float16" : "") + (cuda && kv ? ", fp8_e4m3, fp8_e4m3_page" : "") +
                              " and bfloat16 are",
                          option);
}

// float32 checkpoints stay float32; everything narrower is bfloat16, but for what is computed in its stored form.
DType stored_dtype(const Checkpoint& checkpoint, bool gguf) {
  const bool wide = checkpoint.tensor(Weight::kEmbedding).encoding == files::Encoding::kF32;
  return wide && !gguf ? DType::kF32 : DType::kBF16;
}

// No larger than any draft can be (draft_config.cc), so that nothing computed from it overflows.
Status check_room(const DraftRoom& room) {
  const struct {
    const char* what;
    std::int64_t value, most;
  } limits[] = {{"layers", room.layers, 64},
                {"numbers of a key", room.kv_width, 1 << 20},
                {"captured features", room.features, std::int64_t{256} << 16},
                {"tokens of a block", room.block_size, 256},
                {"parameters", room.parameters, std::int64_t{1} << 40}};
  for (const auto& limit : limits) {
    if (limit.value >= 1 && limit.value <= limit.most) continue;
    return invalid_argument("room for a draft of " + std::to_string(limit.value) + " " + limit.what + ": 1 to " +
                                std::to_string(limit.most) + " is possible",
                            "draft_room");
  }
  return {};
}

Status check_options(const ModelOptions& options, const ModelConfig& config, bool cuda) {
  if (options.page_size_tokens < 1 || options.page_size_tokens > kMaxPageSizeTokens) {
    return invalid_argument(
        std::to_string(options.page_size_tokens) + " is not between 1 and " + std::to_string(kMaxPageSizeTokens),
        "page_size");
  }
  const std::int64_t context = options.context_length_tokens;
  if (context != 0 && (context < kMinContextTokens || context > config.context)) {
    return invalid_argument("must be 0 (the checkpoint's " + std::to_string(config.context) + ") or from " +
                                std::to_string(kMinContextTokens) + " to that, got " + std::to_string(context),
                            "context_length");
  }
  if (options.threads < 0 || options.threads > 1024) {
    return invalid_argument(std::to_string(options.threads) + " is not between 0 and 1024", "threads");
  }
  if (!options.draft_room.has_value()) return {};
  if (cuda && options.draft_room->kind == DraftKind::kEagle3) {
    return invalid_argument("EAGLE-3 drafts are served on the CPU alone; on CUDA DFLASH drafts are", "draft_room");
  }
  return check_room(*options.draft_room);
}

// Before anything is allocated. Of a float8 checkpoint the GPU keeps what is stored, the CPU what it means.
Status check_memory(const core::ModelInfo& info, const Checkpoint& checkpoint, bool as_stored,
                    const device::Device& device) {
  const bool f8 = checkpoint.config().fp8_blocks && device.kind() == device::DeviceKind::kCuda;
  const DType type = f8 ? DType::kF8E4M3 : info.weight_dtype;
  const std::int64_t wanted = as_stored && !checkpoint.config().fp8_blocks
                                  ? checkpoint.source_bytes()
                                  : info.parameters * static_cast<std::int64_t>(bytes_of(type));
  const std::int64_t available = device.free_bytes();
  if (wanted <= available) return {};
  return resource_exhausted(info.path + ": the weights need " + std::to_string(wanted) + " bytes " +
                            (as_stored ? "as stored" : "as " + std::string(to_string(type))) + " and " +
                            std::to_string(available) + " bytes are available on " + device.name());
}

core::ModelInfo describe(const Checkpoint& checkpoint, const std::string& path, const ModelOptions& options,
                         DType weight_dtype) {
  const ModelConfig& config = checkpoint.config();
  core::ModelInfo info;
  info.path = path;
  info.architecture = config.architecture;
  info.weights_identity = checkpoint.identity() + "-" + std::string(to_string(weight_dtype));
  info.weight_dtype = weight_dtype;
  info.vocab_size = static_cast<std::int32_t>(config.vocabulary);
  info.hidden_size = static_cast<std::int32_t>(config.hidden);
  info.num_layers = static_cast<std::int32_t>(config.layers);
  info.context_length_tokens =
      options.context_length_tokens > 0 ? options.context_length_tokens : static_cast<std::int32_t>(config.context);
  info.eos_token_ids = config.eos;
  info.parameters = checkpoint.parameters();
  return info;
}

}  // namespace

Result<std::unique_ptr<Model>> make_cuda_model(DecoderSource& source, const CudaModelOptions& options,
                                               device::Device& device) {
  LEVADA_ASSIGN_OR_RETURN(void* const symbol, device::cuda_module_symbol(kMakeCudaModel));
  Result<std::unique_ptr<Model>> model = unavailable("the module gave no answer");
  reinterpret_cast<MakeCudaModel*>(symbol)(source, options, device, &model);
  return model;
}

Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& path, const ModelOptions& options,
                                          device::Device& device) {
  const bool cuda = device.kind() == device::DeviceKind::kCuda;
  LEVADA_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(path));
  LEVADA_RETURN_IF_ERROR(check_options(options, checkpoint.config(), cuda));
  const bool gguf = !std::filesystem::is_directory(path);
  LEVADA_ASSIGN_OR_RETURN(const DType weights,
                          parse_dtype(options.dtype, "dtype", stored_dtype(checkpoint, gguf), cuda));
  LEVADA_ASSIGN_OR_RETURN(const DType kv, parse_dtype(options.kv_cache_dtype, "kv_cache_dtype", weights, cuda));
  if (!checkpoint.kv_scales().empty() && (kv != DType::kF8E4M3 || options.kv_cache_dtype == kByPage)) {
    LEVADA_LOG_INFO("the checkpoint's scales of a float8 KV cache are not used: --kv-cache-dtype is ",
                    options.kv_cache_dtype);
  }
  auto host = std::make_unique<HostKernels>(options.threads > 0 ? options.threads : available_cores());
  core::ModelInfo info = describe(checkpoint, path.string(), options, weights);
  const bool as_stored = !cuda && options.dtype == "auto" && has_stored_forms(checkpoint);
  if (as_stored) info.weights_identity += "-as-stored";
  LEVADA_RETURN_IF_ERROR(check_memory(info, checkpoint, as_stored, device));
  if (cuda) {
    if (kv != weights && kv != DType::kF8E4M3) {
      return invalid_argument("on CUDA the KV cache has the weights' type, fp8_e4m3 or fp8_e4m3_page",
                              "kv_cache_dtype");
    }
    CheckpointSource source(checkpoint, std::move(info), host->pool);
    return make_cuda_model(source,
                           {.dtype = weights,
                            .f8_kv = kv == DType::kF8E4M3,
                            .f8_page_scales = options.kv_cache_dtype == kByPage,
                            .page_size_tokens = options.page_size_tokens,
                            .warmup_folder = options.warmup_folder,
                            .draft_room = options.draft_room,
                            .drafts = make_draft_opener(source.config(), options.draft_room)},
                           device);
  }

  DecoderParts parts;
  parts.backend = nn::make_cpu_backend(*host->ops);
  parts.host = std::move(host);
  parts.info = std::move(info);
  parts.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
  parts.as_stored = as_stored;
  parts.kv_dtype = kv;
  parts.page_size_tokens = options.page_size_tokens;
  parts.draft_room = options.draft_room;
  return make_decoder_model(std::move(parts), device);
}

}  // namespace levada::model
