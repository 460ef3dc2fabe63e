#include <algorithm>
#include <exception>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <vector>

#include "kernels/cuda/chunk_attention.h"
#include "kernels/cuda/launch.h"

namespace levada::kernels::cuda {
namespace {

using Bf16 = __nv_bfloat16;
using Params = flashinfer::BatchPrefillPagedParams<Bf16, Bf16, Bf16, std::int32_t>;
using Variant = flashinfer::DefaultAttention<false, false, false, false>;

constexpr std::size_t kPartialBytes = 256u << 20;  // results of split rows
constexpr std::size_t kPlanBytes = 8u << 20;       // work lists
constexpr std::size_t kListInts = 4u << 20;        // slices and their pages

template <int HeadDim>
cudaError_t dispatch(const Params& params, std::int64_t tile, Bf16* values, float* sums, cudaStream_t stream) {
  const auto run = [&]<std::uint32_t Tile>() {
    return flashinfer::BatchPrefillWithPagedKVCacheDispatched<true, Tile, HeadDim, HeadDim,
                                                              flashinfer::PosEncodingMode::kNone, false,
                                                              flashinfer::MaskMode::kCausal, false, Variant>(
        params, values, sums, /*enable_pdl=*/false, stream);
  };
  if (tile == 128) return run.template operator()<128>();
  if (tile == 64) return run.template operator()<64>();
  return run.template operator()<16>();
}

}  // namespace

struct ChunkAttention::Impl {
  struct Block {
    std::unique_ptr<device::DeviceBuffer> lists, plan;  // pinned
    std::unique_ptr<device::Event> sent;
  };
  // The slices as FlashInfer takes them: offsets of their rows and pages, the pages, tokens in the last page.
  struct Lists {
    std::int32_t *q_offsets, *page_offsets, *last_page_tokens, *pages;
  };
  static Lists lists_at(void* memory, std::size_t slices) {
    auto* first = static_cast<std::int32_t*>(memory);
    return {first, first + slices + 1, first + 2 * slices + 2, first + 3 * slices + 2};
  }

  int heads = 0, kv_heads = 0, head_dim = 0, page_size = 0;
  std::unique_ptr<device::DeviceBuffer> lists, plan, partial;
  std::array<Block, 3> blocks;
  std::size_t next = 0;
  flashinfer::PrefillPlanInfo info;
  std::size_t slices = 0;
  std::int32_t rows = 0;

  Status fill(const PagedBatch& batch, const Lists& to, std::size_t& pages) const {
    pages = 0;
    to.q_offsets[0] = to.page_offsets[0] = 0;
    for (std::size_t s = 0; s < batch.rows.size(); ++s) {
      const std::int32_t length = batch.context[s] + batch.rows[s];
      const auto count = static_cast<std::size_t>((length + page_size - 1) / page_size);
      if (3 * batch.rows.size() + 2 + pages + count > kListInts) {
        return invalid_argument("a step on CUDA lists at most " + std::to_string(kListInts) + " pages");
      }
      const std::int32_t* table = batch.block_tables.data() + batch.block_table_first[s];
      std::copy(table, table + count, to.pages + pages);
      pages += count;
      to.q_offsets[s + 1] = to.q_offsets[s] + batch.rows[s];
      to.page_offsets[s + 1] = static_cast<std::int32_t>(pages);
      to.last_page_tokens[s] = (length - 1) % page_size + 1;
    }
    return {};
  }

  template <class T>
  T* in(const device::DeviceBuffer& buffer, std::int64_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(buffer.data()) + offset);
  }
};

bool ChunkAttention::supports(DType dtype, int head_dim) {
  return dtype == DType::kBF16 && (head_dim == 64 || head_dim == 128);
}

ChunkAttention::ChunkAttention(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChunkAttention::~ChunkAttention() = default;

std::size_t ChunkAttention::bytes() const {
  return impl_->lists->size_bytes() + impl_->plan->size_bytes() + impl_->partial->size_bytes();
}

Result<std::unique_ptr<ChunkAttention>> ChunkAttention::create(device::Device& device, int heads, int kv_heads,
                                                               int head_dim, int page_size) {
  LEVADA_CHECK(supports(DType::kBF16, head_dim) && heads % kv_heads == 0, "a shape that has a kernel");
  auto impl = std::make_unique<Impl>();
  impl->heads = heads;
  impl->kv_heads = kv_heads;
  impl->head_dim = head_dim;
  impl->page_size = page_size;
  LEVADA_ASSIGN_OR_RETURN(impl->lists, device.allocate(kListInts * sizeof(std::int32_t)));
  LEVADA_ASSIGN_OR_RETURN(impl->plan, device.allocate(kPlanBytes));
  LEVADA_ASSIGN_OR_RETURN(impl->partial, device.allocate(kPartialBytes));
  for (Impl::Block& block : impl->blocks) {
    LEVADA_ASSIGN_OR_RETURN(block.lists, device.allocate_pinned(kListInts * sizeof(std::int32_t)));
    LEVADA_ASSIGN_OR_RETURN(block.plan, device.allocate_pinned(kPlanBytes));
    LEVADA_ASSIGN_OR_RETURN(block.sent, device.make_event());
  }
  return std::unique_ptr<ChunkAttention>(new ChunkAttention(std::move(impl)));
}

Status ChunkAttention::plan(const PagedBatch& batch, device::Stream& stream) {
  Impl& impl = *impl_;
  Impl::Block& block = impl.blocks[impl.next];
  impl.next = (impl.next + 1) % impl.blocks.size();
  if (block.sent->recorded()) LEVADA_RETURN_IF_ERROR(block.sent->wait());
  impl.slices = batch.rows.size();
  const Impl::Lists lists = Impl::lists_at(block.lists->data(), impl.slices);
  std::size_t pages = 0;
  LEVADA_RETURN_IF_ERROR(impl.fill(batch, lists, pages));
  impl.rows = lists.q_offsets[impl.slices];
  const std::size_t used = (3 * impl.slices + 2 + pages) * sizeof(std::int32_t);
  LEVADA_RETURN_IF_ERROR(stream.copy(impl.lists->data(), block.lists->data(), used));
  try {
    const cudaError_t error = flashinfer::PrefillPlan<std::int32_t>(
        impl.partial->data(), kPartialBytes, impl.plan->data(), block.plan->data(), kPlanBytes, impl.info,
        lists.q_offsets, lists.page_offsets, static_cast<std::uint32_t>(impl.rows),
        static_cast<std::uint32_t>(impl.slices), static_cast<std::uint32_t>(impl.heads),
        static_cast<std::uint32_t>(impl.kv_heads), static_cast<std::uint32_t>(impl.head_dim),
        static_cast<std::uint32_t>(impl.head_dim), static_cast<std::uint32_t>(impl.page_size),
        /*enable_cuda_graph=*/false, sizeof(Bf16), /*window_left=*/-1, /*fixed_split_size=*/-1,
        /*disable_split_kv=*/false, /*num_colocated_ctas=*/0, /*uniform_q_len=*/0, /*fixed_uniform_q_len=*/false,
        static_cast<cudaStream_t>(stream.native_handle()));
    LEVADA_RETURN_IF_ERROR(check_cuda(error, "planning chunk attention"));
  } catch (const std::exception& failure) {
    return invalid_argument(std::string("chunk attention: ") + failure.what());
  }
  return stream.record(*block.sent);
}

Status ChunkAttention::run(const TensorView& q, const TensorView& k_plane, const TensorView& v_plane, float scale,
                           const TensorView& out, cudaStream_t stream) {
  Impl& impl = *impl_;
  LEVADA_RETURN_IF_ERROR(expect(q.rank == 3 && q.shape[0] == impl.rows && q.shape[1] == impl.heads &&
                                    q.shape[2] == impl.head_dim && q.dtype == DType::kBF16,
                                "chunk attention", "q bf16 [R, heads, head_dim] with the planned rows"));
  LEVADA_RETURN_IF_ERROR(expect(out.shape[0] == impl.rows && out.shape[1] == q.shape[1] * q.shape[2] &&
                                    out.dtype == DType::kBF16 && k_plane.dtype == DType::kBF16 &&
                                    k_plane.shape == v_plane.shape && k_plane.shape[1] == impl.page_size &&
                                    k_plane.shape[2] == impl.kv_heads && k_plane.shape[3] == impl.head_dim,
                                "chunk attention", "planes bf16 [pages, page_size, kv_heads, head_dim], out to match"));
  const Impl::Lists lists = Impl::lists_at(impl.lists->data(), impl.slices);
  const flashinfer::paged_kv_t<Bf16, std::int32_t> pages(
      static_cast<std::uint32_t>(impl.kv_heads), static_cast<std::uint32_t>(impl.page_size),
      static_cast<std::uint32_t>(impl.head_dim), static_cast<std::uint32_t>(impl.slices), flashinfer::QKVLayout::kNHD,
      k_plane.as<Bf16>(), v_plane.as<Bf16>(), lists.pages, lists.page_offsets, lists.last_page_tokens);
  Params params(q.as<Bf16>(), pages, nullptr, lists.q_offsets, nullptr, nullptr, out.as<Bf16>(), nullptr, nullptr,
                static_cast<std::uint32_t>(impl.heads), static_cast<std::int32_t>(q.strides[0]), impl.head_dim,
                /*window_left=*/-1, /*logits_soft_cap=*/0, scale, /*rope_scale=*/1, /*rope_theta=*/1e4f);
  const flashinfer::PrefillPlanInfo& info = impl.info;
  params.request_indices = impl.in<std::int32_t>(*impl.plan, info.request_indices_offset);
  params.qo_tile_indices = impl.in<std::int32_t>(*impl.plan, info.qo_tile_indices_offset);
  params.kv_tile_indices = impl.in<std::int32_t>(*impl.plan, info.kv_tile_indices_offset);
  params.o_indptr = impl.in<std::int32_t>(*impl.plan, info.o_indptr_offset);
  params.kv_chunk_size_ptr = impl.in<std::int32_t>(*impl.plan, info.kv_chunk_size_ptr_offset);
  params.max_total_num_rows = static_cast<std::uint32_t>(info.total_num_rows);
  params.padded_batch_size = static_cast<std::uint32_t>(info.padded_batch_size);
  params.partition_kv = info.split_kv;
  Bf16* values = nullptr;
  float* sums = nullptr;
  if (info.split_kv) {
    params.merge_indptr = impl.in<std::int32_t>(*impl.plan, info.merge_indptr_offset);
    values = impl.in<Bf16>(*impl.partial, info.v_offset);
    sums = impl.in<float>(*impl.partial, info.s_offset);
  }
  try {
    return check_cuda(impl.head_dim == 64 ? dispatch<64>(params, info.cta_tile_q, values, sums, stream)
                                          : dispatch<128>(params, info.cta_tile_q, values, sums, stream),
                      "chunk attention");
  } catch (const std::exception& failure) {
    return internal_error(std::string("chunk attention: ") + failure.what());
  }
}

}  // namespace levada::kernels::cuda
