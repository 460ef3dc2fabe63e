#include "cli/engine_setup.h"

#include "base/log.h"
#include "cli/model_locator.h"
#include "engine/kv_budget.h"
#include "files/gguf.h"

namespace levada::cli {
namespace {

model::ModelOptions model_options(const engine::Options& options) {
  model::ModelOptions model;
  model.dtype = options.dtype;
  model.kv_cache_dtype = options.kv_cache_dtype;
  model.page_size_tokens = static_cast<std::int32_t>(options.page_size);
  model.context_length_tokens = static_cast<std::int32_t>(options.context_length);
  model.threads = static_cast<int>(options.threads);
  return model;
}

engine::KvBudget kv_budget(const engine::Options& options, const Engine& engine) {
  return {.max_total_tokens = options.max_total_tokens,
          .mem_fraction_static = options.mem_fraction_static,
          .free_bytes = engine.device->free_bytes(),
          .context_length_tokens = engine.model->info().context_length_tokens};
}

}  // namespace

Result<Engine> open_engine(const engine::Options& options) {
  Engine engine;
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path path, locate_model(options.model_path));
  const auto kind = options.device == "cuda" ? device::DeviceKind::kCuda : device::DeviceKind::kCpu;
  LEVADA_ASSIGN_OR_RETURN(engine.device, device::open_device(kind));
  LEVADA_LOG_INFO("loading ", path.string(), " on ", engine.device->name());
  LEVADA_ASSIGN_OR_RETURN(engine.model, model::load_model(path, model_options(options), *engine.device));
  LEVADA_ASSIGN_OR_RETURN(const std::int32_t pages,
                          engine::choose_kv_pages(engine.model->kv_layout(), kv_budget(options, engine)));
  LEVADA_ASSIGN_OR_RETURN(engine.pool, engine.model->make_kv_pool(pages));
  const core::ModelInfo& info = engine.model->info();
  LEVADA_LOG_INFO(info.architecture, ", ", info.parameters / 1'000'000, "M parameters in ",
                  std::string(to_string(info.weight_dtype)), ", ", engine.model->backend(), "; KV pool of ",
                  std::int64_t{pages} * engine.model->kv_layout().page_size_tokens(), " tokens (",
                  (engine.model->kv_layout().bytes_per_page() * pages) >> 20, " MiB)");
  return engine;
}

Result<std::unique_ptr<text::Tokenizer>> open_tokenizer(const std::filesystem::path& model_path,
                                                        const engine::Options& options) {
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path file, locate_tokenizer(model_path, options.tokenizer_path));
  if (file.extension() == ".json") return text::Tokenizer::from_json(file);
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<files::GgufFile> gguf, files::GgufFile::open(file));
  return text::Tokenizer::from_gguf(*gguf, file.string());
}

}  // namespace levada::cli
