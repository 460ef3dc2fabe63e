#include "engine/options.h"

#include "model/model.h"

namespace levada::engine {

void describe(OptionTable& table, Options& options) {
  table.begin_room("engine");
  table.add("model_path", &options.model_path, "GGUF file, Hugging Face folder, or smollm2 (the packaged model)")
      .flag_alias("model");
  table.add("tokenizer_path", &options.tokenizer_path, "tokenizer.json or a folder with one; default: the model's own");
  table.add("device", &options.device, "where the model runs").choices({"cpu", "cuda"});
  table.add("dtype", &options.dtype, "weights: as stored (quantised GGUF on CUDA: bfloat16), or converted")
      .choices({"auto", "float32", "bfloat16"});
  table
      .add("kv_cache_dtype", &options.kv_cache_dtype,
           "KV cache; auto: as the weights. On CUDA: fp8_e4m3 with the checkpoint's scales, or _page with scales of "
           "each page")
      .choices({"auto", "float32", "bfloat16", "fp8_e4m3", "fp8_e4m3_page"});
  table.add("page_size", &options.page_size, "tokens per KV page").range(1, model::kMaxPageSizeTokens);
  table.add("context_length", &options.context_length, "longest prompt plus answer, in tokens; 0: the checkpoint's")
      .range(0, 1 << 24);
  table.add("threads", &options.threads, "CPU threads for kernels; 0: every core this process may use").range(0, 1024);
  table.add(
      "speculative_draft_model_path", &options.speculative_draft_model_path,
      "folder of the DFlash or EAGLE-3 draft to start with; another of its kind may be loaded later (POST /drafts)");
  table.add("speculative_draft_room", &options.speculative_draft_room,
            "config.json of the largest draft that may be loaded later, of whose kind they are; default: that of the "
            "draft to start with");
  table.add("warmup_folder", &options.warmup_folder,
            "CUDA: folder of the file with measured choices that the next start reads; default: ~/.cache/levada; none: "
            "nothing is measured or kept");
  table.add("max_total_tokens", &options.max_total_tokens, "KV pool size in tokens; default: from free memory")
      .range(1, 1 << 30);
  table
      .add("mem_fraction_static", &options.mem_fraction_static,
           "share of the memory left after loading the weights that the KV pool may take; default: 0.5, on CUDA 0.9")
      .range(0.01, 0.95);
}

}  // namespace levada::engine
