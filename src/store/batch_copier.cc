#include "store/batch_copier.h"

#include <algorithm>

#include "base/hash.h"
#include "device/module.h"
#include "store/copy_pieces.h"
#include "store/piece_hash.h"

namespace levada::store {
namespace {

// Values of pieces, and the few bytes of an object too short for the GPU; a sample of 1 GiB has 64 Ki of them.
constexpr std::uint64_t kFirstWords = 16 * 1024;
constexpr std::uint64_t kShortWords = (kShortestOnGpu + 7) / 8;

std::uint64_t words_of(std::uint64_t bytes) { return bytes < kShortestOnGpu ? kShortWords : piece_count(bytes); }

}  // namespace

struct BatchCopier::Gpu {
  CopyPieces* copy_pieces = nullptr;
  // Of the host, where the kernel puts them itself: a copy back would cost more than the hashing.
  std::unique_ptr<device::DeviceBuffer> hashes;
  std::uint64_t words = 0;

  Status hold(device::Device& device, std::uint64_t wanted) {
    if (wanted <= words) return {};
    words = 0;
    const std::uint64_t larger = std::max(wanted, kFirstWords);
    LEVADA_ASSIGN_OR_RETURN(hashes, device.allocate_pinned(larger * 8));
    words = larger;
    return {};
  }
};

BatchCopier::BatchCopier(device::Device& device, std::unique_ptr<device::Stream> stream)
    : device_(device), stream_(std::move(stream)) {}

BatchCopier::~BatchCopier() = default;

Result<std::unique_ptr<BatchCopier>> BatchCopier::create(device::Device& device) {
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<device::Stream> stream, device.make_stream());
  std::unique_ptr<BatchCopier> copier(new BatchCopier(device, std::move(stream)));
  if (device.kind() == device::DeviceKind::kCuda) {
    LEVADA_ASSIGN_OR_RETURN(void* const function, device::cuda_module_symbol(kCopyPieces));
    copier->gpu_ = std::make_unique<Gpu>();
    copier->gpu_->copy_pieces = reinterpret_cast<CopyPieces*>(function);
    LEVADA_RETURN_IF_ERROR(copier->gpu_->hold(device, 1));
  }
  return copier;
}

// What was enqueued before a failure still happens: it is waited for in any case.
Status BatchCopier::finish(Status enqueued) {
  const Status done = stream_->synchronize();
  return enqueued.ok() ? done : enqueued;
}

Status BatchCopier::copy(std::span<const Transfer> transfers) {
  Status enqueued;
  for (const Transfer& transfer : transfers) {
    if (enqueued.ok()) enqueued = stream_->copy(transfer.to, transfer.from, transfer.bytes);
  }
  return finish(std::move(enqueued));
}

void BatchCopier::begin_measured(std::span<const Transfer> transfers) {
  if (gpu_ != nullptr) {
    begun_ = begin_on_gpu(transfers);
    return;
  }
  begun_ = {};
  for (const Transfer& transfer : transfers) {
    if (begun_.ok() && transfer.to != nullptr) begun_ = stream_->copy(transfer.to, transfer.from, transfer.bytes);
  }
}

Result<std::vector<std::uint64_t>> BatchCopier::end_measured(std::span<const Transfer> transfers) {
  LEVADA_RETURN_IF_ERROR(finish(std::exchange(begun_, {})));
  std::vector<std::uint64_t> hashes;
  hashes.reserve(transfers.size());
  const auto* values = gpu_ != nullptr ? static_cast<const std::uint64_t*>(gpu_->hashes->data()) : nullptr;
  for (const Transfer& transfer : transfers) {
    if (values == nullptr) {
      hashes.push_back(piece_hash({transfer.to != nullptr ? transfer.to : transfer.from, transfer.bytes}));
      continue;
    }
    hashes.push_back(transfer.bytes < kShortestOnGpu
                         ? hash64({reinterpret_cast<const std::byte*>(values), transfer.bytes})
                         : fold_pieces({values, piece_count(transfer.bytes)}));
    values += words_of(transfer.bytes);
  }
  return hashes;
}

Status BatchCopier::begin_on_gpu(std::span<const Transfer> transfers) {
  std::uint64_t words = 0;
  for (const Transfer& transfer : transfers) words += words_of(transfer.bytes);
  LEVADA_RETURN_IF_ERROR(gpu_->hold(device_, words));
  auto* const measured = static_cast<std::uint64_t*>(gpu_->hashes->data());
  Status enqueued;
  PieceJobs batch{};
  const auto launch = [&] {
    if (batch.count == 0 || !enqueued.ok()) return;
    const int error = gpu_->copy_pieces(batch, measured, stream_->native_handle());
    if (error != 0) enqueued = internal_error("CUDA: copying objects: error " + std::to_string(error));
    batch.count = 0;
  };
  std::uint64_t at = 0;
  for (const Transfer& transfer : transfers) {
    const std::uint64_t first = std::exchange(at, at + words_of(transfer.bytes));
    if (transfer.bytes >= kShortestOnGpu) {
      batch.jobs[batch.count++] = {transfer.from, transfer.to, transfer.bytes, first};
      if (batch.count == kPieceJobs) launch();
      continue;
    }
    if (enqueued.ok() && transfer.to != nullptr) enqueued = stream_->copy(transfer.to, transfer.from, transfer.bytes);
    if (enqueued.ok()) enqueued = stream_->copy(measured + first, transfer.from, transfer.bytes);
  }
  launch();
  return enqueued;
}

}  // namespace levada::store
