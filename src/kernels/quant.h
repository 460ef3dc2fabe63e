// What: QuantMatrix, a weight matrix in one of GGUF's quantised forms, as the CPU kernels read it.
// Owner: owns its bytes, with those it shares an arena's chunk with.
// Thread: set_row on different rows from any threads; afterwards immutable.
// Invariant: no bit of the file's blocks is changed or dropped: the bytes of sixteen rows (a panel) are interleaved so
// that a vector holds the same bytes of all of them; row() gives the file's bytes back. Rows behind the last are zero.
// Layout of a panel: block by block of the rows; in a block the fields follow each other as in the file, each sixteen
// times as long, in units of 4 (quants), 2 (halves) or 1 (packed scales) bytes that go round the rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "kernels/weight_arena.h"

namespace levada::kernels {

enum class QuantFormat : std::uint8_t { kQ8_0, kQ4_0, kQ4_1, kQ4_K, kQ6_K };

std::string_view to_string(QuantFormat format);
// Elements and bytes of a block as the file has it (docs/formats/gguf.md).
std::int64_t block_elements(QuantFormat format);
std::int64_t block_bytes(QuantFormat format);

class QuantMatrix {
 public:
  static constexpr std::int64_t kPanelRows = 16;

  // REQUIRES: k is a multiple of block_elements(format).
  QuantMatrix(QuantFormat format, std::int64_t n, std::int64_t k, WeightArena& arena);
  // The same with memory that it shares with nobody.
  QuantMatrix(QuantFormat format, std::int64_t n, std::int64_t k);
  QuantFormat format() const { return format_; }
  std::int64_t rows() const { return n_; }
  std::int64_t columns() const { return k_; }
  std::int64_t row_bytes() const { return row_bytes_; }
  std::int64_t panel_bytes() const { return kPanelRows * row_bytes_; }
  // Of all panels.
  std::int64_t bytes() const;
  const std::byte* data() const { return data_.get(); }

  // row_bytes() bytes as the file has them.
  void set_row(std::int64_t row, const std::byte* blocks);
  void row(std::int64_t row, std::byte* blocks) const;

 private:
  QuantFormat format_;
  std::int64_t n_, k_, row_bytes_;
  std::shared_ptr<std::byte> data_;  // its place in an arena
};

}  // namespace levada::kernels
