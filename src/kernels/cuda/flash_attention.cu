#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "kernels/cuda/flash_attention.h"
#include "kernels/cuda/flash_call.h"
#include "kernels/cuda/launch.h"

namespace levada::kernels::cuda {
namespace {

// FlashInfer aims at two blocks per multiprocessor when it splits; no GPU it runs on has more of these.
constexpr std::size_t kMaxSplitBlocks = 2 * 256;
constexpr std::size_t kLargestTile = 128, kDecodeTile = 16;
constexpr int kMaxGroup = 16;

// As many bytes as FlashInfer's lists take at most: three ints and a flag per block, one int per row and per request.
std::size_t list_bytes(const FlashShape& shape, std::size_t max_requests) {
  const auto group = static_cast<std::size_t>(shape.heads / shape.kv_heads);
  const std::size_t blocks =
      static_cast<std::size_t>(shape.max_rows) * group / kDecodeTile + max_requests + kMaxSplitBlocks;
  const std::size_t bytes = blocks * 13 + 4 * static_cast<std::size_t>(shape.max_rows) + 4 * max_requests + 4096;
  return (bytes + 255) / 256 * 256;
}

// Partial results exist only where a plan splits: then its blocks are at most kMaxSplitBlocks, or one per padded row.
std::size_t partial_bytes(const FlashShape& shape) {
  const auto kv_heads = static_cast<std::size_t>(shape.kv_heads);
  const std::size_t tiles = std::max(kMaxSplitBlocks * kLargestTile,
                                     static_cast<std::size_t>(shape.max_padded_rows) * kv_heads * kDecodeTile) +
                            kv_heads * kLargestTile * kMaxGroup;
  return tiles * static_cast<std::size_t>(shape.head_dim + 1) * sizeof(float) + 4096;
}

}  // namespace

struct FlashAttention::Plan {
  flashinfer::PrefillPlanInfo info;
  std::int64_t rows = 0;
  std::uint32_t requests = 0;
};

FlashAttention::FlashAttention(const FlashShape& shape) : shape_(shape), plan_(std::make_unique<Plan>()) {}
FlashAttention::~FlashAttention() = default;

std::int64_t FlashAttention::bytes() const {
  return static_cast<std::int64_t>(lists_->size_bytes() + partial_->size_bytes());
}

bool FlashAttention::supports(const FlashShape& shape) {
  return (shape.dtype == DType::kBF16 || (shape.dtype == DType::kF16 && !shape.f8_kv)) &&
         (shape.head_dim == 64 || shape.head_dim == 128) && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 &&
         shape.heads / shape.kv_heads <= kMaxGroup && shape.page_size > 0;
}

Result<std::unique_ptr<FlashAttention>> FlashAttention::create(device::Device& device, const FlashShape& shape) {
  LEVADA_RETURN_IF_ERROR(expect(supports(shape), "flash attention", "a supported shape"));
  std::unique_ptr<FlashAttention> flash(new FlashAttention(shape));
  flash->max_requests_ = static_cast<std::size_t>(std::max(shape.max_rows, shape.max_padded_rows));
  flash->list_bytes_ = list_bytes(shape, flash->max_requests_);
  const std::size_t ints = 3 * flash->max_requests_ + 2 + static_cast<std::size_t>(shape.max_pages);
  const std::size_t bytes = flash->list_bytes_ + ints * sizeof(std::int32_t);
  LEVADA_ASSIGN_OR_RETURN(flash->lists_, device.allocate(bytes));
  LEVADA_ASSIGN_OR_RETURN(flash->partial_, device.allocate(partial_bytes(shape)));
  for (Block& block : flash->blocks_) {
    LEVADA_ASSIGN_OR_RETURN(block.pinned, device.allocate_pinned(bytes));
    LEVADA_ASSIGN_OR_RETURN(block.sent, device.make_event());
  }
  return std::move(flash);  // nvcc doesn't move by itself into a Result
}

Status FlashAttention::gather_requests(const PagedBatch& batch, std::int32_t padded_rows, std::int32_t rows_each) {
  row_first_.assign(1, 0);
  page_first_.assign(1, 0);
  last_tokens_.clear();
  pages_.clear();
  const auto add = [&](std::int32_t rows, std::int32_t tokens) {
    row_first_.push_back(row_first_.back() + rows);
    page_first_.push_back(static_cast<std::int32_t>(pages_.size()));
    last_tokens_.push_back((tokens - 1) % shape_.page_size + 1);
  };
  for (std::size_t s = 0; s < batch.rows.size(); ++s) {
    if (batch.rows[s] == 0) continue;
    LEVADA_RETURN_IF_ERROR(
        expect(batch.first_row[s] == row_first_.back(), "flash attention", "slices in the order of their rows"));
    LEVADA_RETURN_IF_ERROR(expect(padded_rows == 0 || batch.rows[s] == rows_each, "flash attention",
                                  "as many rows in every slice of a padded plan"));
    const std::int32_t tokens = batch.context[s] + batch.rows[s];
    const auto count = static_cast<std::size_t>((tokens - 1) / shape_.page_size + 1);
    const auto table = batch.block_tables.subspan(static_cast<std::size_t>(batch.block_table_first[s]), count);
    pages_.insert(pages_.end(), table.begin(), table.end());
    add(batch.rows[s], tokens);
  }
  while (row_first_.back() < padded_rows) {  // padding rows attend the first tokens of any page
    pages_.insert(pages_.end(), static_cast<std::size_t>((rows_each - 1) / shape_.page_size + 1), 0);
    add(rows_each, rows_each);
  }
  const bool fits = row_first_.back() <= shape_.max_rows && last_tokens_.size() <= max_requests_ &&
                    padded_rows <= shape_.max_padded_rows &&
                    static_cast<std::int64_t>(pages_.size()) <= shape_.max_pages && row_first_.back() > 0;
  return expect(fits && (padded_rows == 0 || row_first_.back() == padded_rows), "flash attention",
                "at least one row, rows and pages within its limits");
}

Status FlashAttention::plan(const PagedBatch& batch, std::int32_t padded_rows, device::Stream& stream,
                            std::int32_t rows_each) {
  LEVADA_RETURN_IF_ERROR(expect(batch.page_size == shape_.page_size, "flash attention", "its page size"));
  LEVADA_RETURN_IF_ERROR(gather_requests(batch, padded_rows, rows_each));
  Block& block = blocks_[next_];
  next_ = (next_ + 1) % blocks_.size();
  if (block.sent->recorded()) LEVADA_RETURN_IF_ERROR(block.sent->wait());

  const std::size_t requests = last_tokens_.size();
  auto* const host = static_cast<std::byte*>(block.pinned->data());
  auto* const device = static_cast<std::byte*>(lists_->data());
  const auto put = [&](const std::vector<std::int32_t>& from, std::size_t at) {
    std::memcpy(host + list_bytes_ + at * sizeof(std::int32_t), from.data(), from.size() * sizeof(std::int32_t));
  };
  // At fixed places, so that a recorded run() finds them.
  put(row_first_, 0);
  put(page_first_, max_requests_ + 1);
  put(last_tokens_, 2 * max_requests_ + 2);
  put(pages_, 3 * max_requests_ + 2);
  // page_first counts from 0 at the first request: FlashInfer's lengths in pages.
  plan_->rows = row_first_.back();
  plan_->requests = static_cast<std::uint32_t>(requests);
  try {
    const bool padded = padded_rows > 0;
    LEVADA_RETURN_IF_ERROR(check_cuda(
        flashinfer::PrefillPlan<std::int32_t>(
            partial_->data(), partial_->size_bytes(), device, host, list_bytes_, plan_->info, row_first_.data(),
            page_first_.data(), static_cast<std::uint32_t>(plan_->rows), plan_->requests,
            static_cast<std::uint32_t>(shape_.heads), static_cast<std::uint32_t>(shape_.kv_heads),
            static_cast<std::uint32_t>(shape_.head_dim), static_cast<std::uint32_t>(shape_.head_dim),
            static_cast<std::uint32_t>(shape_.page_size), padded, 2, /*window_left=*/-1, /*fixed_split_size=*/-1,
            /*disable_split_kv=*/false, /*num_colocated_ctas=*/0, /*uniform_q_len=*/padded ? rows_each : 0,
            /*fixed_uniform_q_len=*/padded, static_cast<cudaStream_t>(stream.native_handle()),
            /*kv_dtype_bytes=*/shape_.f8_kv ? 1 : 2),
        "plan of flash attention"));
  } catch (const std::exception& error) {
    return internal_error(std::string("plan of flash attention: ") + error.what());
  }
  const std::size_t ints = 3 * max_requests_ + 2 + pages_.size();
  LEVADA_RETURN_IF_ERROR(stream.copy(device + list_bytes_, host + list_bytes_, ints * sizeof(std::int32_t)));
  return stream.record(*block.sent);
}

Status FlashAttention::run(const TensorView& q, const TensorView& k_plane, const TensorView& v_plane, float scale,
                           const TensorView& out, cudaStream_t stream, const KvScales& scales) {
  const auto is_plane = [&](const TensorView& view) {
    return view.rank == 4 && view.dtype == (shape_.f8_kv ? DType::kF8E4M3 : shape_.dtype) &&
           view.shape[1] == shape_.page_size && view.shape[2] == shape_.kv_heads && view.shape[3] == shape_.head_dim;
  };
  LEVADA_RETURN_IF_ERROR(expect(plan_->rows > 0, "flash attention", "a plan first"));
  LEVADA_RETURN_IF_ERROR(expect(q.rank == 3 && q.dtype == shape_.dtype && q.shape[0] == plan_->rows &&
                                    q.shape[1] == shape_.heads && q.shape[2] == shape_.head_dim,
                                "flash attention", "q [R, heads, head_dim] with the plan's rows"));
  LEVADA_RETURN_IF_ERROR(
      expect(is_plane(k_plane) && is_plane(v_plane), "flash attention",
             "planes [pages, page_size, kv_heads, head_dim] of q's type, or float8 as the shape says"));
  LEVADA_RETURN_IF_ERROR(check_scales(scales, k_plane, "flash attention"));
  LEVADA_RETURN_IF_ERROR(expect(!scales.by_page(), "flash attention", "one pair of scales for all pages"));
  const std::int64_t width = std::int64_t{shape_.heads} * shape_.head_dim;
  LEVADA_RETURN_IF_ERROR(expect(out.rank == 2 && out.dtype == shape_.dtype && out.shape[0] == plan_->rows &&
                                    out.shape[1] == width && out.strides[0] == width,
                                "flash attention", "out [R, heads * head_dim], contiguous, of q's type"));
  auto* const ints = reinterpret_cast<std::int32_t*>(static_cast<std::byte*>(lists_->data()) + list_bytes_);
  const FlashCall call{.q = q,
                       .k_plane = k_plane,
                       .v_plane = v_plane,
                       .out = out,
                       .scale = scale * scales.k,
                       .v_scale = scales.v,
                       .plan = plan_->info,
                       .requests = plan_->requests,
                       .lists = lists_->data(),
                       .partial = partial_->data(),
                       .row_first = ints,
                       .page_first = ints + max_requests_ + 1,
                       .last_tokens = ints + 2 * max_requests_ + 2,
                       .pages = ints + 3 * max_requests_ + 2};
  if (shape_.f8_kv) return launch_flash_f8(call, stream);
  return shape_.dtype == DType::kBF16 ? launch_flash_bf16(call, stream) : launch_flash_f16(call, stream);
}

}  // namespace levada::kernels::cuda
