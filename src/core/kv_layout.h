// What: KvLayout, the one list of a model's per-token buffers (k, v; later latent, rope, scales, index keys, draft k/v).
// Owner: the model makes it; device pool, sizing, tiers, transfer and cache identity are all derived from it.
// Thread: immutable after construction.
// Invariant: no second list of planes exists anywhere; bytes_per_page() is what every level of the cache allocates.
// Storage: a plane of an owning layer is one array [page][token in page][elements_per_token] of its dtype, or
// [page][elements_per_page].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace levada::core {

inline constexpr const char* kTargetGroup = "target";
inline constexpr const char* kDraftGroup = "draft";  // what a draft has made of the target's states, in the same pages

struct KvPlane {
  std::string name;                  // "k", "v", ...
  std::string group = kTargetGroup;  // identity and hits are per group (law 8)
  DType dtype = DType::kF32;
  std::int32_t elements_per_token = 0;  // per layer
  std::vector<std::int32_t> layers;     // owning layers, ascending
  std::int32_t elements_per_page = 0;   // per layer, of a plane that has some for each page instead of each token
  std::string scaled_by;  // what its numbers are multiplied by: nothing, "layer" (constants of the weights), or a plane
  // A token's numbers are a function of the token behind it, too, so a prefix is theirs only with one token more: the radix
  // tree is keyed by bigrams.
  bool of_next_token = false;

  std::int64_t bytes_per_page_per_layer(std::int32_t page_size_tokens) const;
};

class KvLayout {
 public:
  // Aborts on an empty plane list, a plane without layers or elements or with both kinds of elements, or
  // page_size_tokens < 1.
  KvLayout(std::int32_t page_size_tokens, std::vector<KvPlane> planes);

  std::int32_t page_size_tokens() const { return page_size_tokens_; }
  const std::vector<KvPlane>& planes() const { return planes_; }
  // Sum over planes and their owning layers.
  std::int64_t bytes_per_page() const;
  // Pages needed for `tokens` tokens: the only place that rounds (law 5).
  std::int32_t pages_for(std::int64_t tokens) const;
  // Whether any plane is of_next_token.
  bool of_next_token() const;
  // Stable text over page size and all planes of the group; part of the group's cache identity (law 8). Empty: no such
  // planes.
  std::string identity(const std::string& group = kTargetGroup) const;

 private:
  std::int32_t page_size_tokens_;
  std::vector<KvPlane> planes_;
};

}  // namespace levada::core
