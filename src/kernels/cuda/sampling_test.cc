// Tokens chosen on CUDA against the CPU's sampler, its twin. Needs a GPU.
#include "kernels/cuda/sampling.h"

#include <algorithm>
#include <deque>

#include "kernels/cuda/gpu_tensors.h"
#include "kernels/cuda/gpu_test_device.h"
#include "kernels/sampling.h"

namespace levada::kernels::cuda {
namespace {

struct CudaSamplingTest : ::testing::Test {
  // The GPU's tokens for these rows; logits are as given.
  std::vector<std::int32_t> choose(const std::vector<SamplerRow>& rows, std::vector<float> logits,
                                   std::int64_t vocabulary, const std::vector<std::int32_t>& input_ids = {0}) {
    auto sampler = Sampler::create(device, 64, vocabulary, 1 << 16);
    EXPECT_TRUE(sampler.ok());
    const auto count = static_cast<std::int64_t>(rows.size());
    GpuTensor values(DType::kF32, {count, vocabulary}, 3,
                     [&](std::int64_t i) { return logits[static_cast<std::size_t>(i)]; });
    GpuTensor ids = GpuTensor::ints(input_ids);
    std::vector<std::int32_t> none(rows.size(), -7);
    GpuTensor tokens = GpuTensor::ints(none);
    EXPECT_TRUE((*sampler)->upload(rows, static_cast<std::int32_t>(count), *stream).ok());
    for (int again = 0; again < 2; ++again) {  // the table is as before: a second run counts alike
      if (again == 1) {
        EXPECT_EQ(cudaMemcpy2D(values.view().data, static_cast<std::size_t>(values.view().strides[0]) * 4,
                               logits.data(), static_cast<std::size_t>(vocabulary) * 4,
                               static_cast<std::size_t>(vocabulary) * 4, rows.size(), cudaMemcpyHostToDevice),
                  cudaSuccess);
      }
      const Status ran = (*sampler)->run(values, ids.view().as<const std::int32_t>(), tokens,
                                         static_cast<cudaStream_t>(stream->native_handle()));
      EXPECT_TRUE(ran.ok()) << ran.to_string();
      EXPECT_TRUE(stream->synchronize().ok());
    }
    EXPECT_TRUE(values.guards_hold() && tokens.guards_hold());
    std::vector<std::int32_t> out;
    for (const float token : tokens.floats()) out.push_back(static_cast<std::int32_t>(token));
    return out;
  }
  GpuTestDevice device;
  std::unique_ptr<device::Stream> stream = std::move(device.make_stream()).value();
};

TEST_F(CudaSamplingTest, TokensAreTheTwins) {
  std::mt19937 bits(7);
  const auto below = [&](int n) { return static_cast<int>(bits() % static_cast<unsigned>(n)); };
  for (const int vocabulary : {5, 1000, 49152, 70001}) {
    std::vector<SamplerRow> rows(24);
    std::vector<float> logits;
    std::deque<std::vector<std::int32_t>> lists;
    std::vector<std::int32_t> inputs, want;
    std::vector<std::vector<std::int32_t>> outputs;
    const auto list = [&](int length) -> std::vector<std::int32_t>& {
      auto& ids = lists.emplace_back();
      for (int i = 0; i < length; ++i) ids.push_back(below(std::min(vocabulary + 2, 60)) - 1);
      return ids;
    };
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::normal_distribution<float> normal(0, r % 3 == 0 ? 0.5f : 4.0f);
      for (int i = 0; i < vocabulary; ++i) logits.push_back(r % 5 == 4 ? std::round(normal(bits)) : normal(bits));
      SampleParams& p = rows[r].params;
      p.temperature = below(4) == 0 ? 0.0f : 0.2f + 0.1f * static_cast<float>(below(20));
      p.top_k = below(3) == 0 ? 0 : 1 + below(300);
      p.top_p = below(3) == 0 ? 1.0f : 0.05f * static_cast<float>(1 + below(19));
      p.min_p = below(3) == 0 ? 0.05f : 0.0f;
      p.seed = bits();
      p.position = below(100000);
      if (below(2) == 0) {
        p.frequency_penalty = 0.3f;
        p.presence_penalty = -0.2f;
        p.repetition_penalty = 1.3f;
        p.output_history = list(below(100));
        p.prompt_history = list(below(300));
        rows[r].appended_row = below(2) == 0 ? static_cast<std::int32_t>(r) : -1;
      }
      p.banned = list(below(4));
      inputs.push_back(below(vocabulary));
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      SampleParams p = rows[r].params;
      auto& output = outputs.emplace_back(p.output_history.begin(), p.output_history.end());
      if (rows[r].appended_row >= 0) output.push_back(inputs[r]);
      p.output_history = output;
      const auto first = static_cast<std::ptrdiff_t>(r) * vocabulary;
      std::vector<float> own(logits.begin() + first, logits.begin() + first + vocabulary);
      want.push_back(sample_token(host_view(own, {vocabulary}), p));
    }
    EXPECT_EQ(choose(rows, logits, vocabulary, inputs), want) << "vocabulary " << vocabulary;
  }
}

TEST_F(CudaSamplingTest, TiesGoToTheLowestIdAndNumbersThatAreNoneLose) {
  const float nan = std::nanf(""), inf = INFINITY;
  std::vector<SamplerRow> rows(4);
  for (SamplerRow& row : rows) row.params.temperature = 0;
  const std::vector<std::int32_t> banned = {0, 1};
  rows[3].params.banned = banned;
  EXPECT_EQ(choose(rows, {nan, 2, 5, 5, /**/ -inf, inf, inf, 3, /**/ -0.0f, 0, 0, -1, /**/ 9, 9, -inf, nan}, 4),
            (std::vector<std::int32_t>{2, 1, 0, 2}));
}

TEST_F(CudaSamplingTest, AMaskAllowsItsIdsAlone) {
  std::vector<SamplerRow> rows(2);
  const std::vector<std::uint32_t> mask = {1u << 7, 1u << 3};
  rows[0].params.temperature = 0;
  for (SamplerRow& row : rows) row.params.mask = mask;
  std::vector<float> logits(80, 1.0f);
  logits[3] = logits[43] = 50;
  logits[7] = logits[47] = 2;
  logits[35] = logits[75] = 1.5f;
  std::vector<std::int32_t> tokens = choose(rows, logits, 40);
  EXPECT_EQ(tokens[0], 7);
  EXPECT_TRUE(tokens[1] == 7 || tokens[1] == 35) << tokens[1];
}

TEST_F(CudaSamplingTest, BiasesMasksAndPenaltiesMeetAsInTheTwin) {
  const std::vector<std::int32_t> output = {1, 4}, ids = {1, 2, 99};
  const std::vector<float> values = {0.9f, -100, 5};
  const std::vector<std::uint32_t> mask = {1u << 1 | 1u << 2 | 1u << 4};
  const std::vector<std::int32_t> banned = {1, 2, 4};
  std::vector<SamplerRow> rows(3);
  for (SamplerRow& row : rows) {
    row.params.temperature = 0;
    row.params.repetition_penalty = 2;
    row.params.output_history = output;
    row.params.bias_ids = ids;
    row.params.bias_values = values;
  }
  rows[1].params.mask = rows[2].params.mask = mask;
  rows[2].params.banned = banned;
  std::vector<float> logits;
  for (int row = 0; row < 3; ++row) logits.insert(logits.end(), {1.3f, 1, 50, 1.2f, 1.7f, 0});
  EXPECT_EQ(choose(rows, logits, 6), (std::vector<std::int32_t>{1, 1, 1}));
}

TEST_F(CudaSamplingTest, MoreThanThereIsRoomForIsRefused) {
  auto sampler = std::move(Sampler::create(device, 2, 100, 4)).value();
  std::vector<SamplerRow> rows(3);
  EXPECT_EQ(sampler->upload(rows, 3, *stream).code(), StatusCode::kResourceExhausted);
  const std::vector<std::int32_t> banned(5, 1);
  rows.resize(1);
  rows[0].params.banned = banned;
  EXPECT_EQ(sampler->upload(rows, 1, *stream).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace levada::kernels::cuda
