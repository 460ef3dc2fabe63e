// What: FrozenTables, the target's embedding table and output head: all that a draft borrows from its target.
// Owner: shared by whoever trains against the same target in one process; immutable.
// Thread: loading uses the caller's; afterwards any.
// Invariant: only these two tensors of the checkpoint are read; a tied head is the embedding itself, held once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/status.h"

namespace levada::train {

class FrozenTables {
 public:
  virtual ~FrozenTables() = default;
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t hidden() const = 0;
  // Layers of the target the tables came from.
  virtual std::int64_t target_layers() const = 0;
  virtual bool tied() const = 0;
  // Hash of both tables' bytes and type: a draft goes on only against the tables it began with.
  virtual std::string identity() const = 0;
};

// `path`: a GGUF file or a Hugging Face folder, as for serving. `dtype`: "float32" or "bfloat16".
Result<std::shared_ptr<const FrozenTables>> load_frozen_tables(const std::filesystem::path& path,
                                                               const std::string& dtype);

// Random tied tables of some target's shape, for measurements that need no target.
std::shared_ptr<const FrozenTables> random_frozen_tables(std::int64_t vocabulary, std::int64_t hidden,
                                                         std::int64_t target_layers, const std::string& dtype);

}  // namespace levada::train
