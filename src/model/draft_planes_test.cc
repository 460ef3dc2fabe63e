// Room for a draft adds planes to the one list: pool, sizing and identity follow, the target's own parts stay as they were.
#include "kernels/page_planes.h"
#include "model/model_support_test.h"
#include "model/paged_kv_pool.h"

namespace levada::model {
namespace {

constexpr DraftRoom kRoom{.layers = 3, .kv_width = 24, .features = 128, .parameters = 1 << 20, .block_size = 8};

ModelConfig small() {
  ModelConfig config;
  config.layers = 2, config.kv_heads = 2, config.head_dim = 8;
  return config;
}

TEST(DraftPlanes, AreTheLastTwoOfTheLayoutInAGroupOfTheirOwn) {
  const core::KvLayout layout =
      gqa_layout(small(), DType::kF8E4M3, 4, KvScaling::kPage, DraftPlanes{kRoom, DType::kBF16});
  ASSERT_EQ(layout.planes().size(), 5u);
  for (const std::size_t p : {3u, 4u}) {
    const core::KvPlane& plane = layout.planes()[p];
    EXPECT_EQ(plane.name, p == 3 ? "draft_k" : "draft_v");
    EXPECT_EQ(plane.group, core::kDraftGroup);
    EXPECT_EQ(plane.dtype, DType::kBF16);
    EXPECT_EQ(plane.elements_per_token, 24);
    EXPECT_EQ(plane.layers, (std::vector<std::int32_t>{0, 1, 2}));
    EXPECT_EQ(plane.scaled_by, "");
  }
}

TEST(DraftPlanes, SizingCountsThem) {
  const core::KvLayout without = gqa_layout(small(), DType::kF32, 4),
                       with = gqa_layout(small(), DType::kF32, 4, KvScaling::kNone, DraftPlanes{kRoom, DType::kF32});
  EXPECT_EQ(with.bytes_per_page() - without.bytes_per_page(), 2 * 3 * 4 * 24 * 4);  // planes, layers, tokens, floats
}

TEST(DraftPlanes, HaveAnIdentityOfTheirOwnAndLeaveTheTargetsAsItWas) {
  const core::KvLayout without = gqa_layout(small(), DType::kF32, 4),
                       with = gqa_layout(small(), DType::kF32, 4, KvScaling::kNone, DraftPlanes{kRoom, DType::kF32});
  DraftRoom larger = kRoom;
  larger.layers = 4;
  const core::KvLayout other = gqa_layout(small(), DType::kF32, 4, KvScaling::kNone, DraftPlanes{larger, DType::kF32});
  EXPECT_EQ(with.identity(), without.identity());
  EXPECT_EQ(without.identity(core::kDraftGroup), "");
  EXPECT_NE(with.identity(core::kDraftGroup), "");
  EXPECT_NE(with.identity(core::kDraftGroup), other.identity(core::kDraftGroup));
}

TEST(DraftPlanes, TheModelsPoolHasThemAndPagesCarryThem) {
  const auto device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  ModelOptions options = in_float32(4);
  options.draft_room = kRoom;
  const auto model = std::move(load_model(vectors() / "tiny/llama", options, *device)).value();
  const core::KvLayout& layout = model->kv_layout();
  ASSERT_EQ(layout.planes().size(), 4u);
  EXPECT_EQ(layout.planes()[2].name, "draft_k");
  EXPECT_EQ(layout.planes()[2].dtype, layout.planes()[0].dtype);
  const auto pool = std::move(model->make_kv_pool(6)).value();
  const device::TensorView last = pool->plane(3, 2);
  EXPECT_EQ(last.shape[0], 6);
  EXPECT_EQ(last.shape[1], 4);
  EXPECT_EQ(last.shape[2], 24);
  auto* numbers = last.as<float>();
  numbers[5 * 4 * 24] = 1;
  pool->poison(5);
  EXPECT_TRUE(std::isnan(numbers[5 * 4 * 24])) << "poison reaches them";
  const auto& paged = dynamic_cast<const PagedKvPool&>(*pool);
  EXPECT_EQ(kernels::packed_page_bytes(paged.page_planes()), layout.bytes_per_page()) << "copies of pages take them";
}

TEST(DraftPlanes, AnImpossibleRoomIsRefused) {
  const auto device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  ModelOptions options = in_float32();
  options.draft_room = kRoom;
  options.draft_room->layers = 0;
  const auto model = load_model(vectors() / "tiny/llama", options, *device);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(model.status().message().find("0 layers"), std::string::npos) << model.status().message();
}

}  // namespace
}  // namespace levada::model
