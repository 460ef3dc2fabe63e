#include "cli/engine_setup.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/lap.h"
#include "base/log.h"
#include "cli/model_locator.h"
#include "engine/kv_budget.h"
#include "files/gguf.h"
#include "text/tokenizer_folder.h"

namespace levada::cli {
namespace {

// Of the user as the system knows him, whatever the environment says; none for a user without one.
std::string cache_folder() {
  const passwd* const user = ::getpwuid(::getuid());
  return user == nullptr ? std::string() : std::string(user->pw_dir) + "/.cache/levada";
}

std::string warmup_folder(const std::string& asked) {
  if (asked == "none") return {};
  return asked.empty() ? cache_folder() : asked;
}

model::ModelOptions model_options(const engine::Options& options) {
  model::ModelOptions model;
  model.dtype = options.dtype;
  model.kv_cache_dtype = options.kv_cache_dtype;
  model.page_size_tokens = static_cast<std::int32_t>(options.page_size);
  model.context_length_tokens = static_cast<std::int32_t>(options.context_length);
  model.threads = static_cast<int>(options.threads);
  model.warmup_folder = warmup_folder(options.warmup_folder);
  return model;
}

// "--speculative-draft-room: /x/config.json: block_size must be …"
Status of_option(const char* flag, const Status& failure) {
  const std::string what = failure.field().empty() ? failure.message() : failure.field() + ": " + failure.message();
  return Status(failure.code() == StatusCode::kNotFound ? failure.code() : StatusCode::kInvalidArgument, what, flag);
}

constexpr double kCpuShare = 0.5, kCudaShare = 0.9;
constexpr std::int64_t kCudaReserveBytes = std::int64_t{1} << 30;  // graphs, and kernels loaded at their first use

engine::KvBudget kv_budget(const engine::Options& options, const Engine& engine) {
  const bool cuda = engine.device->kind() == device::DeviceKind::kCuda;
  engine::KvBudget budget;
  budget.max_total_tokens = options.max_total_tokens;
  budget.mem_fraction_static = options.mem_fraction_static.value_or(cuda ? kCudaShare : kCpuShare);
  budget.free_bytes = engine.device->free_bytes();
  budget.reserve_bytes = cuda ? kCudaReserveBytes : 0;
  budget.context_length_tokens = engine.model->info().context_length_tokens;
  if (cuda) budget.max_contexts.reset();
  return budget;
}

// "12.34 GiB", or MiB for what is small.
std::string amount(std::int64_t bytes) {
  const bool large = bytes >= std::int64_t{1} << 30;
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", static_cast<double>(bytes) / (large ? 1 << 30 : 1 << 20),
                large ? "GiB" : "MiB");
  return text;
}

// What was promised lies in memory by now: the pool is allocated whole, and every part below is measured, not planned.
void report_memory(const Engine& engine) {
  const core::KvLayout& layout = engine.pool->layout();
  std::string parts;
  for (const model::MemoryUse& use : engine.model->memory()) parts += use.what + " " + amount(use.bytes) + ", ";
  LEVADA_LOG_INFO("memory of ", engine.device->name(), ": ", parts, "KV pool ",
                  amount(layout.bytes_per_page() * engine.pool->pages()), " (",
                  std::int64_t{engine.pool->pages()} * layout.page_size_tokens(), " tokens); ",
                  amount(engine.device->free_bytes()), " of ", amount(engine.device->total_bytes()), " free");
}

}  // namespace

Result<std::optional<model::DraftRoom>> draft_room(const engine::Options& options) {
  const bool own = !options.speculative_draft_room.empty();
  std::filesystem::path file = own ? options.speculative_draft_room : options.speculative_draft_model_path;
  if (file.empty()) return std::optional<model::DraftRoom>();
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) file /= "config.json";
  const auto config = model::read_draft_config(file);
  if (!config.ok()) {
    return of_option(own ? "speculative_draft_room" : "speculative_draft_model_path", config.status());
  }
  return std::optional<model::DraftRoom>(model::room_for(*config));
}

Result<Engine> open_engine(const engine::Options& options) {
  Engine engine;
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path path, locate_model(options.model_path));
  const auto kind = options.device == "cuda" ? device::DeviceKind::kCuda : device::DeviceKind::kCpu;
  model::ModelOptions wanted = model_options(options);
  LEVADA_ASSIGN_OR_RETURN(wanted.draft_room, draft_room(options));
  Lap lap;
  LEVADA_ASSIGN_OR_RETURN(engine.device, device::open_device(kind));
  const std::string device_time = lap();
  LEVADA_LOG_INFO("loading ", path.string(), " on ", engine.device->name());
  LEVADA_ASSIGN_OR_RETURN(engine.model, model::load_model(path, wanted, *engine.device));
  const std::string weights_time = lap();
  LEVADA_ASSIGN_OR_RETURN(const std::int32_t pages,
                          engine::choose_kv_pages(engine.model->kv_layout(), kv_budget(options, engine)));
  LEVADA_ASSIGN_OR_RETURN(engine.pool, engine.model->make_kv_pool(pages));
  const core::ModelInfo& info = engine.model->info();
  LEVADA_LOG_INFO(info.architecture, ", ", info.parameters / 1'000'000, "M parameters in ",
                  std::string(to_string(info.weight_dtype)), ", ", engine.model->backend(), "; device ", device_time,
                  ", weights ", weights_time, ", KV pool and kernels ", lap());
  report_memory(engine);
  return engine;
}

Result<std::unique_ptr<text::Tokenizer>> open_tokenizer(const std::filesystem::path& model_path,
                                                        const engine::Options& options) {
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path file, locate_tokenizer(model_path, options.tokenizer_path));
  if (file.extension() == ".json") return text::Tokenizer::from_json(file);
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<files::GgufFile> gguf, files::GgufFile::open(file));
  return text::Tokenizer::from_gguf(*gguf, file.string());
}

std::string tokenizer_folder(const std::filesystem::path& model_path, const engine::Options& options) {
  const auto file = locate_tokenizer(model_path, options.tokenizer_path);
  if (!file.ok()) return model_path.string();
  if (file->extension() == ".json") return std::filesystem::absolute(*file).parent_path().string();
  const auto written = [&]() -> Result<std::filesystem::path> {
    LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<files::GgufFile> gguf, files::GgufFile::open(*file));
    LEVADA_ASSIGN_OR_RETURN(const text::TokenizerFiles files, text::tokenizer_files(*gguf, file->string()));
    return text::write_tokenizer_folder(files, cache_folder());
  }();
  if (written.ok()) return written->string();
  LEVADA_LOG_WARNING("/model_info names no tokenizer folder: ", written.status().message());
  return file->string();
}

}  // namespace levada::cli
