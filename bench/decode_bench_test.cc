#include "bench/decode_bench.h"

#include <gtest/gtest.h>

namespace levada::bench {
namespace {

struct TinyEngine {
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  std::unique_ptr<model::Model> model =
      std::move(model::load_model(LEVADA_SOURCE_DIR "/tests/vectors/tiny/llama", {}, *device)).value();
};

TEST(DecodeBench, MeasuresTheReadLimitOneStreamEightStreamsAndPrefill) {
  TinyEngine tiny;
  auto pool = std::move(tiny.model->make_kv_pool(decode_bench_pages(tiny.model->kv_layout()))).value();
  const std::vector<Case> cases = run_decode_bench(std::move(tiny.model), std::move(pool), 0.01).value();
  ASSERT_EQ(cases.size(), 5u);
  EXPECT_EQ(cases[0].name, "decode_1_limit");
  EXPECT_EQ(cases[1].name, "decode_1");
  EXPECT_EQ(cases[2].name, "decode_8");
  EXPECT_EQ(cases[3].name, "prefill_512");
  EXPECT_EQ(cases[4].name, "prefill_512_captured");
  for (const Case& line : cases) {
    EXPECT_EQ(line.unit, "tok/s");
    EXPECT_GT(line.median, 0);
  }
}

TEST(DecodeBench, APoolThatIsTooSmallIsRefusedWithBothNumbers) {
  TinyEngine tiny;
  auto pool = std::move(tiny.model->make_kv_pool(3)).value();
  const Status status = run_decode_bench(std::move(tiny.model), std::move(pool)).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("256 pages, this one has 3"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace levada::bench
