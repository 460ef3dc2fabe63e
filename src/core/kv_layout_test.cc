#include "core/kv_layout.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace levada::core {
namespace {

KvPlane plane(std::string name, std::int32_t elements, std::vector<std::int32_t> layers, DType dtype = DType::kBF16,
              std::string group = "target") {
  return {std::move(name), std::move(group), dtype, elements, std::move(layers)};
}

TEST(KvLayout, BytesAreTheSumOverPlanesAndTheirOwningLayers) {
  // k and v in 3 layers at 64 bf16 each, an index key in layer 2 only at 16 f32.
  const KvLayout layout(4,
                        {plane("k", 64, {0, 1, 2}), plane("v", 64, {0, 1, 2}), plane("index_k", 16, {2}, DType::kF32)});
  EXPECT_EQ(layout.planes()[0].bytes_per_page_per_layer(4), 4 * 128);
  EXPECT_EQ(layout.bytes_per_page(), 4 * (2 * 3 * 128 + 64));
}

TEST(KvLayout, APlaneByPageHasItsElementsOnceAPage) {
  KvPlane scales = plane("kv_scale", 0, {0, 1, 2}, DType::kF32);
  scales.elements_per_page = 4;
  EXPECT_EQ(scales.bytes_per_page_per_layer(4), 16);
  EXPECT_EQ(KvLayout(4, {plane("k", 64, {0}), scales}).bytes_per_page(), 4 * 128 + 3 * 16);
}

TEST(KvLayout, BytesOfALargeModelDoNotOverflow) {
  std::vector<std::int32_t> layers(100000);
  const KvLayout layout(64, {plane("k", 65536, layers, DType::kF32)});
  EXPECT_EQ(layout.bytes_per_page(), std::int64_t{64} * 65536 * 4 * 100000);
}

TEST(KvLayout, PagesForRoundsUp) {
  const KvLayout layout(16, {plane("k", 1, {0})});
  for (const auto& [tokens, pages] : {std::pair{0, 0}, {1, 1}, {15, 1}, {16, 1}, {17, 2}, {32, 2}, {33, 3}}) {
    EXPECT_EQ(layout.pages_for(tokens), pages) << tokens << " tokens";
  }
}

// B28 (a): whatever changes the bytes of a page changes its identity.
TEST(KvLayout, IdentityTellsEveryFieldApart) {
  KvPlane by_layer = plane("k", 8, {0, 1}), by_page = by_layer, per_page = plane("k", 0, {0, 1});
  KvPlane of_next = plane("k", 8, {0, 1});
  of_next.of_next_token = true;
  by_layer.scaled_by = "layer";
  by_page.scaled_by = "kv_scale";
  per_page.elements_per_page = 8;
  const std::vector<KvLayout> layouts = {
      KvLayout(4, {by_layer}),
      KvLayout(4, {by_page}),
      KvLayout(4, {per_page}),
      KvLayout(4, {of_next}),
      KvLayout(4, {plane("k", 8, {0, 1})}),
      KvLayout(8, {plane("k", 8, {0, 1})}),
      KvLayout(4, {plane("v", 8, {0, 1})}),
      KvLayout(4, {plane("k", 16, {0, 1})}),
      KvLayout(4, {plane("k", 8, {0})}),
      KvLayout(4, {plane("k", 8, {1})}),
      KvLayout(4, {plane("k", 8, {0, 1}, DType::kF16)}),
      KvLayout(4, {plane("k", 8, {0, 1}, DType::kBF16, "draft")}),
      KvLayout(4, {plane("k", 8, {0, 1}), plane("v", 8, {0, 1})}),
      KvLayout(4, {plane("v", 8, {0, 1}), plane("k", 8, {0, 1})}),
      KvLayout(4, {plane("k", 8, {0, 11})}),
      KvLayout(4, {plane("k", 8, {0, 1, 1})}),
  };
  std::set<std::string> identities;
  for (const KvLayout& layout : layouts) EXPECT_TRUE(identities.insert(layout.identity()).second) << layout.identity();
  EXPECT_EQ(KvLayout(4, {by_layer}).identity(), layouts[0].identity());
  EXPECT_TRUE(KvLayout(4, {by_layer, of_next}).of_next_token());
  EXPECT_FALSE(KvLayout(4, {by_layer}).of_next_token());
}

TEST(KvLayoutDeathTest, AbortsOnALayoutThatCannotHoldAToken) {
  EXPECT_DEATH(KvLayout(0, {plane("k", 8, {0})}), "a page holds at least one token");
  EXPECT_DEATH(KvLayout(4, {}), "a layout lists at least one plane");
  EXPECT_DEATH(KvLayout(4, {plane("k", 8, {})}), "a plane has layers and elements");
  EXPECT_DEATH(KvLayout(4, {plane("k", 0, {0})}), "a plane has layers and elements");
  KvPlane both = plane("k", 8, {0});
  both.elements_per_page = 8;
  EXPECT_DEATH(KvLayout(4, {both}), "a plane has layers and elements");
}

}  // namespace
}  // namespace levada::core
