// What: SampleRef, the name and shape of one captured sample: metadata only, never a tensor's bytes.
// Owner: a value; made by whoever adopted the capture's reply, carried by the registry, read by trainers.
// Thread: any.
// Invariant: a ref names objects that were readable when it was made; (store_id, sample_id, generation) names each
// capture once, and a generation is never reused. An object's value is exactly the raw little-endian row-major bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace levada::core {

struct StoredTensor {
  std::string name;  // the feature's name: "hidden_states", "input_ids", …
  DType dtype = DType::kBF16;
  std::vector<std::int64_t> shape;  // leading dimension 1: one sample per ref
  std::uint64_t checksum = 0;       // XXH3-64 of the bytes
  // product(shape) * bytes_of(dtype). REQUIRES: dimensions >= 0 and a product below 2^63 (checked where a ref enters).
  std::uint64_t bytes() const;
  bool operator==(const StoredTensor&) const = default;
};

// Where an arena on a device has the objects, in upstream's terms: "host:port" of its transfer engine and of the control
// channel, and the address of every tensor. Readers of ours go by the ref's store_url and the objects' names instead.
struct ArenaPlace {
  std::string session, control;
  std::vector<std::uint64_t> addresses;  // in the order of the ref's tensors
  bool operator==(const ArenaPlace&) const = default;
};

struct SampleRef {
  std::string store_id;
  std::string sample_id;  // "{run_id}:{task_id}", ":e{epoch}" appended from the second epoch on
  std::uint32_t generation = 1;
  std::string store_url;          // where the bytes are: "tcp://host:port" or "shm:///path/of/socket"
  std::uint64_t incarnation = 0;  // of the arena; another one means that every object of this ref is gone
  std::int32_t num_tokens = 0;    // rows of every feature
  std::vector<std::int32_t>
      aux_layer_ids;  // order of the layers concatenated in the aux feature; k = output of layer k
  std::vector<StoredTensor> tensors;
  std::optional<ArenaPlace> arena;  // none unless the server named it
  std::uint64_t bytes() const;
  bool operator==(const SampleRef&) const = default;
};

// "{store_id}/{sample_id}/g{generation}/{name}", each component percent-encoded outside A-Z a-z 0-9 . _ : -
// (equal to SpecForge's key for ordinary ids). REQUIRES: no component is empty.
std::string object_key(std::string_view store_id, std::string_view sample_id, std::uint32_t generation,
                       std::string_view name);
// What the keys of all samples of a run begin with.
std::string keys_of_run(std::string_view store_id, std::string_view run_id);

}  // namespace levada::core
