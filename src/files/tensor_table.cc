#include "files/tensor_table.h"

#include <algorithm>

#include "files/layout.h"

namespace levada::files {

Result<TensorTable> TensorTable::build(std::vector<TensorInfo> tensors, const std::string& file) {
  TensorTable table;
  table.tensors_ = std::move(tensors);
  table.by_name_.reserve(table.tensors_.size());
  for (std::size_t i = 0; i < table.tensors_.size(); ++i) {
    const std::string& name = table.tensors_[i].name;
    const auto [first, is_new] = table.by_name_.emplace(name, i);
    if (!is_new)
      return data_loss(file + ": tensor " + in_quotes(name) + " stands twice, as entries " +
                       std::to_string(first->second) + " and " + std::to_string(i));
  }
  return table;
}

const TensorInfo* TensorTable::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Status check_disjoint(const std::vector<TensorInfo>& tensors, std::span<const std::byte> section,
                      const std::string& file) {
  std::vector<const TensorInfo*> by_place;
  by_place.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) {
    if (!tensor.bytes.empty()) by_place.push_back(&tensor);
  }
  std::sort(by_place.begin(), by_place.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->bytes.data() < b->bytes.data(); });
  const auto range = [&](const TensorInfo& tensor) {
    const auto begin = tensor.bytes.data() - section.data();
    return "bytes " + std::to_string(begin) + " to " +
           std::to_string(begin + static_cast<std::ptrdiff_t>(tensor.bytes.size()));
  };
  for (std::size_t i = 1; i < by_place.size(); ++i) {
    const TensorInfo& before = *by_place[i - 1];
    const TensorInfo& after = *by_place[i];
    if (before.bytes.data() + before.bytes.size() > after.bytes.data())
      return data_loss(file + ": tensor " + in_quotes(after.name) + " (" + range(after) + ") overlaps tensor " +
                       in_quotes(before.name) + " (" + range(before) + ")");
  }
  return {};
}

}  // namespace levada::files
