#include "consumer/sample_check.h"

#include <string>

namespace levada::consumer {
namespace {

Status bad(const fanout::GrantedLease& lease, const std::string& what) {
  return data_loss("sample " + lease.source_sample_id + " at position " + std::to_string(lease.source_index) + ": " +
                   what);
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t dimension : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
  return text + "]";
}

struct Wanted {
  std::string_view name;
  DType dtype;
  std::vector<std::int64_t> shape;
};

}  // namespace

Status check_lease(const fanout::GrantedLease& lease, const RunCard& card) {
  if (lease.source_index < 0 || lease.source_index >= card.total_samples) return bad(lease, "is not in the plan");
  if (lease.ref == nullptr) return bad(lease, "has no ref");
  const core::SampleRef& ref = *lease.ref;
  if (ref.sample_id != lease.source_sample_id) return bad(lease, "its ref is of " + ref.sample_id);
  if (ref.sample_id.compare(0, card.run_id.size() + 1, card.run_id + ":") != 0) return bad(lease, "is of another run");
  if (ref.store_id != card.store_id) return bad(lease, "lies in store " + ref.store_id + ", not " + card.store_id);
  if (ref.generation != static_cast<std::uint64_t>(lease.generation)) {
    return bad(lease, "its ref is of generation " + std::to_string(ref.generation) + ", granted was " +
                          std::to_string(lease.generation));
  }
  if (ref.aux_layer_ids != card.aux_layer_ids) return bad(lease, "holds other layers than the run's");
  const std::int64_t length = ref.num_tokens;
  if (length < 1) return bad(lease, "has no tokens");
  const std::int64_t width = card.aux_width();
  const Wanted wanted[] = {{"hidden_states", card.dtype, {1, length, width}},
                           {"input_ids", DType::kI64, {1, length}},
                           {"loss_mask", DType::kI64, {1, length}}};
  if (ref.tensors.size() != std::size(wanted)) {
    return bad(lease, "has " + std::to_string(ref.tensors.size()) + " objects instead of 3");
  }
  for (std::size_t i = 0; i < std::size(wanted); ++i) {
    const core::StoredTensor& tensor = ref.tensors[i];
    if (tensor.name != wanted[i].name)
      return bad(lease, "object " + tensor.name + " instead of " + std::string(wanted[i].name));
    if (tensor.dtype != wanted[i].dtype || tensor.shape != wanted[i].shape) {
      return bad(lease, tensor.name + " is " + std::string(to_string(tensor.dtype)) + text_of(tensor.shape) +
                            ", the contract says " + std::string(to_string(wanted[i].dtype)) +
                            text_of(wanted[i].shape));
    }
  }
  const std::uint64_t planned = card.input_hashes[static_cast<std::size_t>(lease.source_index)];
  if (ref.tensors[1].checksum != planned) return bad(lease, "input_ids are not the plan's");
  return {};
}

Status check_finite(std::span<const std::uint16_t> bits, std::int64_t width) {
  constexpr std::uint16_t kExponent = 0x7F80;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if ((bits[i] & kExponent) != kExponent) continue;
    return data_loss("hidden_states row " + std::to_string(static_cast<std::int64_t>(i) / width) + " is not finite");
  }
  return {};
}

}  // namespace levada::consumer
