#include "kernels/quant.h"

#include <cstring>
#include <span>

#include "base/check.h"

namespace levada::kernels {
namespace {

// Consecutive bytes of a block and the unit in which they are interleaved.
struct Field {
  std::int64_t first, bytes, unit;
};

std::span<const Field> fields_of(QuantFormat format) {
  static constexpr Field kQ8_0[] = {{0, 2, 2}, {2, 32, 4}};
  static constexpr Field kQ4_0[] = {{0, 2, 2}, {2, 16, 4}};
  static constexpr Field kQ4_1[] = {{0, 4, 2}, {4, 16, 4}};
  static constexpr Field kQ4_K[] = {{0, 4, 2}, {4, 12, 1}, {16, 128, 4}};
  static constexpr Field kQ6_K[] = {{0, 192, 4}, {192, 16, 1}, {208, 2, 2}};
  switch (format) {
    case QuantFormat::kQ8_0: return kQ8_0;
    case QuantFormat::kQ4_0: return kQ4_0;
    case QuantFormat::kQ4_1: return kQ4_1;
    case QuantFormat::kQ4_K: return kQ4_K;
    case QuantFormat::kQ6_K: return kQ6_K;
  }
  return {};
}

// Calls move(offset in the row, offset in the panel, bytes) for every unit of one row.
template <class Move>
void for_each_unit(QuantFormat format, std::int64_t row_bytes, std::int64_t lane, Move move) {
  const std::int64_t block = block_bytes(format);
  for (std::int64_t at = 0; at < row_bytes; at += block) {
    for (const Field& field : fields_of(format)) {
      for (std::int64_t i = 0; i < field.bytes; i += field.unit) {
        const std::int64_t first = at + field.first;
        move(first + i, QuantMatrix::kPanelRows * (first + i) + lane * field.unit, field.unit);
      }
    }
  }
}

}  // namespace

std::string_view to_string(QuantFormat format) {
  switch (format) {
    case QuantFormat::kQ8_0: return "Q8_0";
    case QuantFormat::kQ4_0: return "Q4_0";
    case QuantFormat::kQ4_1: return "Q4_1";
    case QuantFormat::kQ4_K: return "Q4_K";
    case QuantFormat::kQ6_K: return "Q6_K";
  }
  return "?";
}

std::int64_t block_elements(QuantFormat format) {
  return format == QuantFormat::kQ4_K || format == QuantFormat::kQ6_K ? 256 : 32;
}

std::int64_t block_bytes(QuantFormat format) {
  switch (format) {
    case QuantFormat::kQ8_0: return 34;
    case QuantFormat::kQ4_0: return 18;
    case QuantFormat::kQ4_1: return 20;
    case QuantFormat::kQ4_K: return 144;
    case QuantFormat::kQ6_K: return 210;
  }
  return 0;
}

QuantMatrix::QuantMatrix(QuantFormat format, std::int64_t n, std::int64_t k, WeightArena& arena)
    : format_(format), n_(n), k_(k), row_bytes_(k / block_elements(format) * block_bytes(format)) {
  LEVADA_CHECK(n >= 1 && k >= 1 && k % block_elements(format) == 0, "a quantised row is whole blocks");
  data_ = arena.take(static_cast<std::size_t>(bytes()));
  const std::int64_t last_panel = (n - 1) / kPanelRows * panel_bytes();
  std::memset(data_.get() + last_panel, 0, static_cast<std::size_t>(panel_bytes()));
}

QuantMatrix::QuantMatrix(QuantFormat format, std::int64_t n, std::int64_t k)
    : QuantMatrix(format, n, k, *std::make_unique<WeightArena>()) {}

std::int64_t QuantMatrix::bytes() const { return (n_ + kPanelRows - 1) / kPanelRows * panel_bytes(); }

void QuantMatrix::set_row(std::int64_t row, const std::byte* blocks) {
  LEVADA_CHECK(row >= 0 && row < n_, "a row of this matrix");
  std::byte* const panel = data_.get() + row / kPanelRows * panel_bytes();
  for_each_unit(format_, row_bytes_, row % kPanelRows, [&](std::int64_t from, std::int64_t to, std::int64_t unit) {
    std::memcpy(panel + to, blocks + from, static_cast<std::size_t>(unit));
  });
}

void QuantMatrix::row(std::int64_t row, std::byte* blocks) const {
  LEVADA_CHECK(row >= 0 && row < n_, "a row of this matrix");
  const std::byte* const panel = data_.get() + row / kPanelRows * panel_bytes();
  for_each_unit(format_, row_bytes_, row % kPanelRows, [&](std::int64_t to, std::int64_t from, std::int64_t unit) {
    std::memcpy(blocks + to, panel + from, static_cast<std::size_t>(unit));
  });
}

}  // namespace levada::kernels
