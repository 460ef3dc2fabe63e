// What: sampling parameters out of a request, in OpenAI's and in SGLang's native spelling.
// Owner: the parser of one request.
// Thread: its owner's.
// Invariant: what comes out satisfies core::SamplingParams: finite, in range, ids in the vocabulary, no empty stop
// string.
// Ranges and defaults are listed in docs/api.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/sampling_params.h"
#include "serve/field_reader.h"
#include "serve/model_context.h"

namespace levada::serve {

using SeedSource = std::function<std::uint64_t()>;

// Fields that both spellings share. A seed that isn't given is drawn from `seeds`.
void read_common_sampling(FieldReader& fields, const ModelContext& context, const SeedSource& seeds,
                          core::SamplingParams& sampling);

// How many tokens the client allows. Resolved once the prompt's length is known.
struct OutputLimit {
  std::optional<std::int64_t> max_tokens;
  std::optional<std::int64_t> min_tokens;
  std::string field = "max_tokens", min_field = "min_tokens";  // for messages
};

// Stores the limits: `default_tokens` (nullopt: the rest of the context) where the client gave none.
// kInvalidArgument if prompt and max_tokens together exceed the context, or min exceeds max.
Status resolve_limit(const ModelContext& context, const OutputLimit& limit, std::size_t prompt_tokens,
                     std::optional<std::int64_t> default_tokens, core::SamplingParams& sampling);

}  // namespace levada::serve
