#include "serve/capture_request.h"

#include <gtest/gtest.h>

#include "capture/row_sink.h"
#include "serve/field_reader.h"

namespace levada::serve {
namespace {

class CaptureRequestTest : public testing::Test {
 protected:
  Result<std::optional<CaptureBody>> read(const std::string& body, std::size_t prompts = 1,
                                          const std::string& bearer = "") {
    auto object = parse_object(parser, body);
    EXPECT_TRUE(object.ok()) << object.status().to_string();
    return read_captures(&terms, bearer, object.value(), prompts);
  }
  CaptureItem item(const std::string& item_json) {
    auto body = read(R"({"spec_capture":)" + item_json + "}");
    EXPECT_TRUE(body.ok()) << body.status().to_string();
    return std::move((*body)->items.at(0));
  }

  simdjson::dom::parser parser;
  CaptureTerms terms{.limits = {.store_id = "run", .layers = 30, .hidden_size = 8},
                     .default_layers = {1, 9},
                     .dtype = DType::kBF16,
                     .token = ""};
};

const std::string kItem = R"({"store_id":"run","sample_id":"run:t","gen":3,"replace":true,)"
                          R"("features":{"aux":"hidden_states","last_hidden":"target"},)"
                          R"("passthrough":[{"name":"input_ids","data":[5,6],"shape":[1,2],"dtype":"int64"},)"
                          R"({"name":"loss_mask","data":[0,1],"shape":[1,2],"dtype":"uint8"}]})";

TEST_F(CaptureRequestTest, ABodyWithoutASpecAsksForNoCapture) {
  EXPECT_FALSE(read(R"({"input_ids":[1]})")->has_value());
  EXPECT_FALSE(read(R"({"input_ids":[1],"spec_capture":null,"sampling_params":{"custom_params":{}}})")->has_value());
}

TEST_F(CaptureRequestTest, ThePatchSpellingIsATopLevelItemOrList) {
  const CaptureItem one = item(kItem);
  ASSERT_TRUE(one.error.ok()) << one.error.to_string();
  EXPECT_EQ(one.spec.sample_id, "run:t");
  EXPECT_EQ(one.spec.generation, 3);
  EXPECT_TRUE(one.spec.replace);
  ASSERT_EQ(one.spec.features.size(), 2u);
  EXPECT_EQ(one.spec.features[0].name, "hidden_states");
  EXPECT_EQ(one.spec.features[0].states, (std::vector<std::int32_t>{1, 9}));
  EXPECT_EQ(one.spec.features[1].states, std::vector<std::int32_t>{capture::kFinalNorm});
  ASSERT_EQ(one.spec.passthrough.size(), 2u);
  EXPECT_EQ(one.spec.passthrough[0].bytes.size(), 16u);
  EXPECT_EQ(one.spec.passthrough[1].bytes, (std::vector<std::byte>{std::byte{0}, std::byte{1}}));
  const auto list = read(R"({"spec_capture":[)" + kItem + "," + kItem + "]}", 2);
  EXPECT_EQ((*list)->items.size(), 2u);
  EXPECT_FALSE((*list)->results_in_lists);
}

TEST_F(CaptureRequestTest, ThePluginSpellingIsJsonTextOrAnObjectInCustomParams) {
  std::string text;
  for (const char c : kItem) text += c == '"' ? std::string("\\\"") : std::string(1, c);
  const auto body = read(R"({"sampling_params":[{"custom_params":{"spec_capture":")" + text +
                             R"("}},{"custom_params":{"spec_capture":)" + kItem + "}}]}",
                         2);
  ASSERT_TRUE(body.ok()) << body.status().to_string();
  EXPECT_TRUE((*body)->results_in_lists);
  for (const CaptureItem& read_item : (*body)->items) {
    EXPECT_TRUE(read_item.error.ok()) << read_item.error.to_string();
    EXPECT_EQ(read_item.spec.sample_id, "run:t");
  }
}

TEST_F(CaptureRequestTest, BothSpellingsInOneRequestAreErrorsOfTheItems) {
  const auto body =
      read(R"({"spec_capture":)" + kItem + R"(,"sampling_params":{"custom_params":{"spec_capture":)" + kItem + "}}}");
  ASSERT_TRUE(body.ok());
  EXPECT_FALSE((*body)->items[0].error.ok());
}

TEST_F(CaptureRequestTest, LayersAndDtypeMayBeSaidPerItem) {
  const CaptureItem own =
      item(R"({"store_id":"run","sample_id":"run:t","features":{"aux":"h"},"layers":{"aux":[4,2]},"dtype":"float32"})");
  ASSERT_TRUE(own.error.ok()) << own.error.to_string();
  EXPECT_EQ(own.spec.features[0].states, (std::vector<std::int32_t>{4, 2}));
  EXPECT_EQ(own.spec.features[0].dtype, DType::kF32);
  EXPECT_EQ(own.spec.generation, 1);
  EXPECT_FALSE(own.spec.replace);
}

TEST_F(CaptureRequestTest, OneBadItemIsItsOwnErrorAndItsNeighboursAreRead) {
  const auto body = read(R"({"spec_capture":[)" + kItem + R"(,7,null,{"features":{"aux":3}},"{]")" + "]}", 5);
  ASSERT_TRUE(body.ok()) << body.status().to_string();
  EXPECT_TRUE((*body)->items[0].error.ok());
  for (std::size_t i = 1; i < 5; ++i) EXPECT_FALSE((*body)->items[i].error.ok()) << i;
}

TEST_F(CaptureRequestTest, ErrorsNameTheField) {
  const auto field = [&](const std::string& fields) { return item("{" + fields + "}").error.field(); };
  EXPECT_EQ(field(R"("gen":"x")"), "gen");
  EXPECT_EQ(field(R"("features":[])"), "features");
  EXPECT_EQ(field(R"("features":{"logits":"x"})"), "features");
  EXPECT_EQ(field(R"("features":{"aux":"h"},"layers":"all")"), "layers");
  EXPECT_EQ(field(R"("features":{"aux":"h"},"layers":[-1])"), "layers");
  EXPECT_EQ(field(R"("features":{"aux":"h"},"dtype":"float")"), "dtype");
  EXPECT_EQ(field(R"("features":{"aux":"h"},"passthrough":[{"name":"x","data":[300],"shape":[1],"dtype":"uint8"}])"),
            "passthrough[0].data");
  EXPECT_EQ(field(R"("features":{"aux":"h"},"passthrough":[{"name":"x","data":[1],"shape":[1],"dtype":"complex"}])"),
            "passthrough[0].dtype");
  terms.default_layers.clear();
  EXPECT_EQ(field(R"("features":{"aux":"h"})"), "layers");
}

TEST_F(CaptureRequestTest, AListOfTheWrongLengthFailsTheCall) {
  EXPECT_EQ(read(R"({"spec_capture":[]})", 2).status().field(), "spec_capture");
}

TEST_F(CaptureRequestTest, AWrongOrMissingTokenFailsTheCallWith401) {
  terms.token = "secret";
  const std::string plain = R"({"spec_capture":)" + kItem + "}";
  EXPECT_EQ(read(plain).status().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(read(plain, 1, "Secret").status().code(), StatusCode::kUnauthenticated);
  EXPECT_TRUE(read(plain, 1, "secret").ok());
  const std::string shown = R"({"spec_capture":{"auth_token":"secret",)" + kItem.substr(1) + "}";
  EXPECT_TRUE(read(shown).ok());
}

TEST_F(CaptureRequestTest, AServerThatDoesNotCaptureSaysSo) {
  auto object = parse_object(parser, R"({"spec_capture":{}})");
  const auto refused = read_captures(nullptr, "", object.value(), 1);
  EXPECT_EQ(refused.status().field(), "spec_capture");
}

TEST_F(CaptureRequestTest, AnAnswerIsCapturedWithItsPromptOnRequest) {
  auto object = parse_object(parser, R"({"capture":{"sample_id":"run:live","features":{"aux":"hidden_states"}}})");
  auto item = read_live_capture(&terms, "", object.value());
  ASSERT_TRUE(item.ok()) << item.status().to_string();
  ASSERT_TRUE(item->has_value());
  EXPECT_EQ((*item)->spec.store_id, "run");
  const std::vector<core::Token> tokens = {7, 8, 9};
  complete_live_capture(**item, tokens, 2);
  ASSERT_EQ((*item)->spec.passthrough.size(), 2u);
  EXPECT_EQ((*item)->spec.passthrough[0].name, "input_ids");
  EXPECT_EQ((*item)->spec.passthrough[0].bytes[16], std::byte{9});
  EXPECT_EQ((*item)->spec.passthrough[1].name, "loss_mask");
  EXPECT_EQ((*item)->spec.passthrough[1].bytes[8], std::byte{0});
  EXPECT_EQ((*item)->spec.passthrough[1].bytes[16], std::byte{1});
  EXPECT_TRUE(capture::check((*item)->spec, 3, terms.limits).ok());
}

TEST_F(CaptureRequestTest, AWrongLiveWishFailsTheCallNamingItsField) {
  const auto field = [&](const std::string& wish) {
    auto object = parse_object(parser, R"({"capture":)" + wish + "}");
    return read_live_capture(&terms, "", object.value()).status().field();
  };
  EXPECT_EQ(field("3"), "capture");
  EXPECT_EQ(field("{}"), "capture.features");
  EXPECT_EQ(field(R"({"features":{"aux":"h"}})"), "capture.sample_id");
  EXPECT_EQ(field(R"({"sample_id":"run:x","features":{"aux":"h"},"layers":[99]})"), "capture.features.h.layers");
  EXPECT_EQ(
      field(R"({"sample_id":"run:x","features":{"aux":"h"},"passthrough":[{"name":"x","data":[1],"shape":[1]}]})"),
      "capture.passthrough");
  terms.token = "secret";
  EXPECT_EQ(field(R"({"sample_id":"run:x","features":{"aux":"h"}})"), "capture.auth_token");
}

}  // namespace
}  // namespace levada::serve
