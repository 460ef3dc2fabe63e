// What: NamedSlice, a tensor's place in a flat buffer; SliceList lays them out, FlatCursor takes them up again.
// Owner: the layouts (draft_layout.h, eagle_layout.h).
// Thread: one.
// Invariant: slices lie one after the other without gaps; a cursor goes through them in the order of the list.
// Names and shapes: docs/formats/checkpoint.md.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace levada::nn {

struct NamedSlice {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t first = 0, count = 0;  // elements in the flat buffer
};

class SliceList {
 public:
  void add(std::string name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (std::int64_t dimension : shape) count *= dimension;
    slices.push_back({std::move(name), std::move(shape), next_, count});
    next_ += count;
  }
  std::vector<NamedSlice> slices;

 private:
  std::int64_t next_ = 0;
};

class FlatCursor {
 public:
  explicit FlatCursor(const at::Tensor& flat) : flat_(flat) {}
  at::Tensor vector(std::int64_t size) {
    next_ += size;
    return flat_.narrow(0, next_ - size, size);
  }
  at::Tensor matrix(std::int64_t rows, std::int64_t columns) { return vector(rows * columns).view({rows, columns}); }

 private:
  const at::Tensor& flat_;
  std::int64_t next_ = 0;
};

}  // namespace levada::nn
