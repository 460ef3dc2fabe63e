// What: ModelInfo, what serve, sched and the tokenizer need to know of a model without knowing the model.
// Owner: value type made by model::load.
// Thread: immutable.
// Invariant: vocab_size counts embedding rows; every id of the tokenizer lies below it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "core/ids.h"

namespace levada::core {

struct ModelInfo {
  std::string path;              // as given by the user
  std::string architecture;      // "llama", "qwen3"
  std::string weights_identity;  // hash over names, shapes, dtypes and sampled bytes of the weights (law 8)
  DType weight_dtype = DType::kBF16;
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t num_layers = 0;
  std::int32_t context_length_tokens = 0;  // max_position_embeddings or the GGUF's context_length
  std::vector<Token> eos_token_ids;
  std::int64_t parameters = 0;
};

}  // namespace levada::core
