// The capture request's wire form and the order in which a reply's rows are judged.
#include "producer/capture_call.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace levada::producer {
namespace {

using Json = nlohmann::json;
using Kind = CaptureVerdict::Kind;

class CaptureCallTest : public testing::Test {
 protected:
  CaptureCallTest() {
    fanout::CaptureOrder order;
    order.source_sample_id = "run:x";
    order.generation = 3;
    order.replace = true;
    tasks_ = {{order, &sample_}};
    result_ = {{"sample_id", "run:x"},
               {"store_id", "store"},
               {"gen", 3},
               {"aux_layer_ids", {1, 2}},
               {"incarnation", "00000000000000ff"},
               {"store", {{"tcp", "tcp://h:1"}, {"shm", "shm:///s"}, {"ucx", "ucx://h:2"}}},
               {"features",
                {{"hidden_states", {{"shape", {1, 3, 8}}, {"dtype", "bfloat16"}, {"checksum", "0000000000000001"}}},
                 {"input_ids", {{"shape", {1, 3}}, {"dtype", "int64"}, {"checksum", "0000000000000002"}}},
                 {"loss_mask", {{"shape", {1, 3}}, {"dtype", "int64"}, {"checksum", "0000000000000003"}}}}}};
  }
  Result<std::vector<CaptureVerdict>> read(const Json& row, StoreChoice store = StoreChoice::kAuto) {
    return read_capture_reply(Json::array({row}).dump(), tasks_, contract_, store);
  }
  static Json row_of(const Json& result) { return {{"meta_info", {{"spec_capture", result}}}}; }
  // What becomes of a row whose result was changed.
  std::string verdict(const std::function<void(Json&)>& change) {
    Json result = result_;
    change(result);
    const auto verdicts = read(row_of(result));
    if (!verdicts.ok()) return "call failed";
    const CaptureVerdict& verdict = (*verdicts)[0];
    if (verdict.kind == Kind::kCaptured) return "captured";
    const char* kind = verdict.kind == Kind::kTerminal  ? "terminal: "
                       : verdict.kind == Kind::kRefused ? "refused: "
                                                        : "retryable: ";
    return kind + verdict.error;
  }

  const CaptureContract contract_{"store", {1, 2}, 4, DType::kBF16};
  const PreparedSample sample_{"x", {5, 6, 7}, {0, 1, 1}};
  std::vector<CaptureTask> tasks_;
  Json result_;
};

TEST_F(CaptureCallTest, Q1TheBodyIsThePatchCarriersForm) {
  const Json body = Json::parse(capture_body(tasks_, contract_, [] { return "nonce"; }));
  const Json wanted = Json::parse(R"({
    "input_ids": [[5, 6, 7]], "extra_key": ["nonce"], "sampling_params": {"temperature": 0.0, "max_new_tokens": 1},
    "spec_capture": [{"store_id": "store", "sample_id": "run:x", "gen": 3, "replace": true,
      "features": {"aux": "hidden_states"}, "layers": {"aux": [1, 2]}, "dtype": "bfloat16",
      "passthrough": [{"name": "input_ids", "data": [5, 6, 7], "shape": [1, 3], "dtype": "int64"},
                      {"name": "loss_mask", "data": [0, 1, 1], "shape": [1, 3], "dtype": "int64"}]}]})");
  EXPECT_EQ(body, wanted);
}

TEST_F(CaptureCallTest, AGoodRowBecomesACompleteRef) {
  const auto verdicts = read(row_of(result_));
  ASSERT_TRUE(verdicts.ok());
  const core::SampleRef& ref = (*verdicts)[0].ref;
  EXPECT_EQ(ref.store_id, "store");
  EXPECT_EQ(ref.sample_id, "run:x");
  EXPECT_EQ(ref.generation, 3u);
  EXPECT_EQ(ref.store_url, "shm:///s");
  EXPECT_EQ(ref.incarnation, 255u);
  EXPECT_EQ(ref.num_tokens, 3);
  EXPECT_EQ(ref.aux_layer_ids, (std::vector<std::int32_t>{1, 2}));
  ASSERT_EQ(ref.tensors.size(), 3u);
  EXPECT_EQ(ref.tensors[0], (core::StoredTensor{"hidden_states", DType::kBF16, {1, 3, 8}, 1}));
  EXPECT_EQ(static_cast<std::int64_t>(ref.bytes()), 3 * contract_.bytes_per_token());
}

TEST_F(CaptureCallTest, TheStoreIsTheOneAskedFor) {
  EXPECT_EQ((*read(row_of(result_), StoreChoice::kTcp))[0].ref.store_url, "tcp://h:1");
  EXPECT_EQ((*read(row_of(result_), StoreChoice::kUcx))[0].ref.store_url, "ucx://h:2");
  EXPECT_EQ(choose_store({"shm:///s", "tcp://h:1", ""}, StoreChoice::kUcx).status().message(),
            "the server offers no ucx store");
  EXPECT_EQ(*choose_store({"", "tcp://h:1", "ucx://h:2"}, StoreChoice::kAuto), "tcp://h:1") << "UCX only if asked for";
  EXPECT_EQ(verdict([](Json& r) { r["store"] = Json::object(); }), "terminal: the server offers no tcp store");
}

TEST_F(CaptureCallTest, I11AnArenaIsReadUnderEitherOfItsNames) {
  EXPECT_FALSE((*read(row_of(result_)))[0].ref.arena.has_value()) << "T6: a server without one";
  std::uint64_t address = 0x7f0000000000;
  for (auto& [name, feature] : result_["features"].items()) feature["address"] = address += 512;
  for (const char* name : {"nvlink", "arena"}) {
    Json result = result_;
    result[name] = {{"session", "h:5"}, {"control", "h:6"}};
    const auto ref = (*read(row_of(result)))[0].ref;
    ASSERT_TRUE(ref.arena.has_value()) << name;
    EXPECT_EQ(ref.arena->session, "h:5");
    EXPECT_EQ(ref.arena->control, "h:6");
    for (std::size_t i = 0; i < ref.tensors.size(); ++i)
      EXPECT_EQ(Json(ref.arena->addresses[i]), result["features"][ref.tensors[i].name]["address"]);
  }
}

TEST_F(CaptureCallTest, Q11AResultInAListIsTheSame) {
  EXPECT_EQ((*read(row_of(Json::array({result_}))))[0].kind, Kind::kCaptured);
  EXPECT_EQ((*read(row_of(Json::array({Json::array({result_})}))))[0].kind, Kind::kCaptured);
  Json other = result_;
  other["sample_id"] = "run:y";
  EXPECT_EQ((*read(row_of(Json::array({other, result_}))))[0].kind, Kind::kCaptured);
}

TEST_F(CaptureCallTest, Q12AnErrorIsTheTasksOwn) {
  const auto verdicts = read(row_of({{"sample_id", "run:x"}, {"error", "no space"}}));
  ASSERT_TRUE(verdicts.ok());
  EXPECT_EQ((*verdicts)[0].kind, Kind::kRetryable);
  EXPECT_EQ((*verdicts)[0].error, "no space");
}

TEST_F(CaptureCallTest, Q12IdentityIsJudgedBeforeContent) {
  EXPECT_EQ(verdict([](Json& r) { r["sample_id"] = "run:y", r["features"] = 7; }), "call failed");
  EXPECT_EQ(verdict([](Json& r) { r["store_id"] = "other"; }), "call failed");
  EXPECT_EQ(verdict([](Json& r) { r["gen"] = 2; }), "call failed");
  EXPECT_EQ(verdict([](Json& r) { r["gen"] = "3"; }), "call failed");
}

TEST_F(CaptureCallTest, F6F7EachBreachOfTheContractIsNamed) {
  EXPECT_EQ(verdict([](Json& r) { r.erase("aux_layer_ids"); }), "terminal: aux_layer_ids is missing, wanted [1,2]");
  EXPECT_EQ(verdict([](Json& r) { r["aux_layer_ids"] = {2, 1}; }), "terminal: aux_layer_ids is [2,1], wanted [1,2]");
  EXPECT_EQ(verdict([](Json& r) {
              r["features"]["hidden_states"]["shape"] = {1, 2, 8};
            }),
            "terminal: hidden_states has 2 rows for a prompt of 3 tokens");
  EXPECT_EQ(verdict([](Json& r) {
              r["features"]["hidden_states"]["shape"] = {1, 3, 4};
            }),
            "terminal: hidden_states has shape [1,3,4], wanted [1,3,8]");
  EXPECT_EQ(verdict([](Json& r) { r["features"]["hidden_states"]["dtype"] = "float32"; }),
            "terminal: hidden_states has dtype \"float32\", wanted bfloat16");
  EXPECT_EQ(verdict([](Json& r) { r["features"]["input_ids"].erase("checksum"); }),
            "terminal: input_ids.checksum must be 16 hexadecimal digits");
  EXPECT_EQ(verdict([](Json& r) { r["features"].erase("loss_mask"); }), "terminal: feature loss_mask is missing");
  EXPECT_EQ(verdict([](Json& r) {
              r["features"]["target"] = {{"shape", {1, 3, 4}}};
            }),
            "terminal: features holds more than what was asked for");
  EXPECT_EQ(verdict([](Json& r) { r["incarnation"] = "xyz"; }), "terminal: incarnation must be 16 hexadecimal digits");
  EXPECT_EQ(verdict([](Json& r) { r.erase("features"); }), "terminal: features is missing");
  EXPECT_EQ(verdict([](Json& r) {
              r["features"] = {{"hidden_states", 7}};
            }),
            "terminal: hidden_states has shape none, wanted [1,3,8]");
}

TEST_F(CaptureCallTest, F8WhatIsNoReplyFailsTheCall) {
  for (const char* body : {"", "null", "{}", "[]", "[7]", "[[]]", "[{}, {}]", "[null]"}) {
    EXPECT_FALSE(read_capture_reply(body, tasks_, contract_, StoreChoice::kAuto).ok()) << body;
  }
}

TEST_F(CaptureCallTest, Q12ARowWithoutAResultIsTerminal) {
  for (const char* row : {"{}", R"({"meta_info": {}})", R"({"meta_info": 7})",
                          R"({"meta_info": {"spec_capture": null}})", R"({"meta_info": {"spec_capture": []}})"}) {
    const auto verdicts = read(Json::parse(row));
    ASSERT_TRUE(verdicts.ok()) << row;
    EXPECT_EQ((*verdicts)[0].kind, Kind::kTerminal) << row;
  }
}

}  // namespace
}  // namespace levada::producer
