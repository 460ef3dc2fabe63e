// Page gather and scatter against their twins, over random pools. Needs a GPU.
#include "kernels/cuda/pages.h"

#include <algorithm>

#include "kernels/cuda/gpu_tensors.h"
#include "kernels/ref/ref_pages.h"

namespace levada::kernels::cuda {
namespace {

// The same pool on GPU and CPU: bytes of every plane, with slack between the layers.
class Pools {
 public:
  explicit Pools(std::mt19937& bits) {
    const auto upto = [&](int most) { return static_cast<std::int64_t>(bits() % static_cast<unsigned>(most)) + 1; };
    const std::int64_t pages = upto(40), count = upto(4);
    for (std::int64_t p = 0; p < count; ++p) {
      PagePlane plane{nullptr, upto(6), pages, 16 * upto(700), 0};
      plane.layer_stride_bytes = plane.pages * plane.page_bytes + 16 * (upto(3) - 1);
      std::vector<std::uint8_t>& bytes =
          host_bytes_.emplace_back(static_cast<std::size_t>(plane.layers * plane.layer_stride_bytes));
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(bits());
      void* memory = nullptr;
      EXPECT_EQ(cudaMalloc(&memory, bytes.size()), cudaSuccess);
      EXPECT_EQ(cudaMemcpy(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
      gpu.push_back(plane);
      gpu.back().data = memory;
      host.push_back(plane);
      host.back().data = bytes.data();
    }
  }
  Pools(const Pools&) = delete;
  Pools& operator=(const Pools&) = delete;
  ~Pools() {
    for (const PagePlane& plane : gpu) cudaFree(plane.data);
  }
  void expect_equal() {
    for (std::size_t p = 0; p < gpu.size(); ++p) {
      std::vector<std::uint8_t> seen(host_bytes_[p].size());
      ASSERT_EQ(cudaMemcpy(seen.data(), gpu[p].data, seen.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      EXPECT_TRUE(seen == host_bytes_[p]) << "plane " << p;
    }
  }
  std::vector<PagePlane> gpu, host;

 private:
  std::vector<std::vector<std::uint8_t>> host_bytes_;
};

// Distinct pages, one of them outside the pool.
std::vector<std::int32_t> some_pages(std::mt19937& bits, std::int64_t in_pool) {
  std::vector<std::int32_t> all;
  for (std::int32_t p = 0; p < in_pool; ++p) all.push_back(p);
  std::shuffle(all.begin(), all.end(), bits);
  all.resize(bits() % all.size() + 1);
  all.push_back(bits() % 2 == 0 ? -1 : static_cast<std::int32_t>(in_pool));
  return all;
}

TEST(CudaPages, GatherAndScatterEqualTheirTwinsOverRandomPools) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 bits(seed);
    Pools pools(bits);
    const std::vector<std::int32_t> from = some_pages(bits, pools.gpu[0].pages);
    const auto count = static_cast<std::int32_t>(from.size());
    auto ids = GpuTensor::ints(from);
    const std::int64_t bytes = packed_page_bytes(pools.gpu) * count;
    auto packed = GpuTensor(DType::kI32, {bytes / 4}, 0, [](std::int64_t) { return -1.0f; });
    std::vector<std::uint8_t> want(static_cast<std::size_t>(bytes)), got(want.size());
    expect_ok(gather_pages(pools.gpu, ids.view().as<std::int32_t>(), count, packed.view().data, nullptr));
    ref_gather_pages(pools.host, from, want.data());
    EXPECT_TRUE(packed.guards_hold());
    LEVADA_CUDA_OK(cudaMemcpy(got.data(), packed.view().data, got.size(), cudaMemcpyDeviceToHost));
    EXPECT_TRUE(got == want);

    // Into other pages, so that something moves.
    std::vector<std::int32_t> into = from;
    std::rotate(into.begin(), into.begin() + 1, into.end());
    auto into_ids = GpuTensor::ints(into);
    expect_ok(scatter_pages(pools.gpu, into_ids.view().as<std::int32_t>(), count, packed.view().data, nullptr));
    LEVADA_CUDA_OK(cudaDeviceSynchronize());
    ref_scatter_pages(pools.host, into, want.data());
    pools.expect_equal();
  }
}

TEST(CudaPages, PinnedMemoryTakesPagesToo) {
  std::mt19937 bits(99);
  Pools pools(bits);
  const std::vector<std::int32_t> from = some_pages(bits, pools.gpu[0].pages);
  auto ids = GpuTensor::ints(from);
  std::vector<std::uint8_t> want(static_cast<std::size_t>(packed_page_bytes(pools.gpu)) * from.size());
  void* pinned = nullptr;
  LEVADA_CUDA_OK(cudaMallocHost(&pinned, want.size()));
  expect_ok(
      gather_pages(pools.gpu, ids.view().as<std::int32_t>(), static_cast<std::int32_t>(from.size()), pinned, nullptr));
  LEVADA_CUDA_OK(cudaDeviceSynchronize());
  ref_gather_pages(pools.host, from, want.data());
  EXPECT_EQ(std::memcmp(pinned, want.data(), want.size()), 0);
  cudaFreeHost(pinned);
}

TEST(CudaPages, WhatIsNotInPacksOf16IsRefused) {
  std::mt19937 bits(5);
  Pools pools(bits);
  auto ids = GpuTensor::ints({0});
  const auto* const id = ids.view().as<std::int32_t>();
  std::vector<PagePlane> odd = pools.gpu;
  odd[0].page_bytes += 8;
  EXPECT_EQ(gather_pages(odd, id, 1, odd[0].data, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(gather_pages({}, id, 1, odd[0].data, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(scatter_pages(pools.gpu, id, 1, static_cast<std::byte*>(odd[0].data) + 4, nullptr).code(),
            StatusCode::kInvalidArgument);
  const std::vector<PagePlane> many(kMaxPagePlanes + 1, pools.gpu[0]);
  EXPECT_EQ(gather_pages(many, id, 1, odd[0].data, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(gather_pages(pools.gpu, nullptr, 0, nullptr, nullptr).ok());
}

}  // namespace
}  // namespace levada::kernels::cuda
