// What load_draft() accepts and what it refuses, by name and with both numbers.
#include "model/draft_support_test.h"

namespace levada::model {
namespace {

class DraftCheckpoints : public testing::Test {
 protected:
  std::unique_ptr<Model> target(const ModelOptions& options) {
    return std::move(load_model(folders.target(), options, *device)).value();
  }
  Status load(const ModelOptions& options) {
    folders.write();
    return target(options)->load_draft(folders.draft()).status();
  }
  void expect_failure(StatusCode code, const std::vector<std::string>& words) {
    expect_failure(folders.options(), code, words);
  }
  void expect_failure(const ModelOptions& options, StatusCode code, const std::vector<std::string>& words) {
    const Status status = load(options);
    EXPECT_EQ(status.code(), code) << status.to_string();
    for (const std::string& word : words)
      EXPECT_NE(status.to_string().find(word), std::string::npos) << status.message();
  }
  void rename(const std::string& from, const std::string& to) {
    auto node = folders.tensors.extract(from);
    node.key() = to;
    folders.tensors.insert(std::move(node));
  }
  // What the draft proposes after a prompt.
  std::vector<core::Token> proposed() {
    folders.write();
    Bench bench(folders.target(), folders.options(), *device);
    const auto draft = bench.model->load_draft(folders.draft());
    EXPECT_TRUE(draft.ok()) << draft.status().to_string();
    Sequence sequence = bench.sequence({5, 17, 30, 41, 2, 9}, 8);
    return run_slice(bench, sequence, {6, 0, 3}, draft.value()).proposed;
  }

  DraftFolders folders;
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
};

TEST_F(DraftCheckpoints, NamesMayHaveAPrefixOrBeTheEncoders) {
  const std::vector<core::Token> plain = proposed();
  for (const auto& [name, tensor] : std::map(folders.tensors)) rename(name, "model." + name);
  EXPECT_EQ(proposed(), plain) << "model.";
  rename("model.fc.weight", "encoder.fc.weight");
  rename("model.hidden_norm.weight", "model.encoder.output_norm_enc.weight");
  EXPECT_EQ(proposed(), plain) << "encoder's names";
}

TEST_F(DraftCheckpoints, AMissingTensorIsNamed) {
  folders.tensors.erase("layers.1.self_attn.k_norm.weight");
  expect_failure(StatusCode::kDataLoss, {"tensor layers.1.self_attn.k_norm.weight is missing"});
}

TEST_F(DraftCheckpoints, AnUnknownTensorIsNamed) {
  folders.tensors["layers.2.self_attn.k_norm.weight"] = folders.tensors["layers.1.self_attn.k_norm.weight"];
  expect_failure(StatusCode::kDataLoss, {"unknown tensor layers.2.self_attn.k_norm.weight", "2 layers"});
  folders.tensors.erase("layers.2.self_attn.k_norm.weight");
  folders.tensors["layers.0.self_attn.q_proj.bias"] = folders.tensors["norm.weight"];
  expect_failure(StatusCode::kDataLoss, {"unknown tensor layers.0.self_attn.q_proj.bias", "without attention_bias"});
}

TEST_F(DraftCheckpoints, AMisshapenTensorIsNamedWithBothShapes) {
  folders.config.target_layer_ids = {0, 2};
  expect_failure(StatusCode::kDataLoss, {"tensor fc.weight has shape", "[32, 96]", "[32, 64]"});
}

TEST_F(DraftCheckpoints, ATensorUnderTwoNamesIsRefused) {
  folders.tensors["encoder.fc.weight"] = folders.tensors["fc.weight"];
  expect_failure(StatusCode::kDataLoss, {"fc.weight and encoder.fc.weight are the same one"});
}

TEST_F(DraftCheckpoints, ATensorThatHoldsNoFloatsIsRefused) {
  folders.tensors["norm.weight"].dtype = "I32";
  expect_failure(StatusCode::kDataLoss, {"tensor norm.weight is stored as I32"});
}

TEST_F(DraftCheckpoints, WhatDoesNotFitTheTargetIsNamedWithBothNumbers) {
  folders.config.num_target_layers = 7;
  expect_failure(StatusCode::kInvalidArgument, {"num_target_layers is 7, the target's is 6"});
  folders.config.num_target_layers = 6;
  folders.config.vocabulary = 65;
  expect_failure(StatusCode::kInvalidArgument, {"vocab_size is 65, the target's is 64"});
  folders.config.vocabulary = 64;
  folders.config.hidden = 64;
  expect_failure(StatusCode::kInvalidArgument, {"hidden_size is 64, the target's is 32"});
  folders.config.hidden = 32;
  folders.config.target_layer_ids = {0, 2, 5};
  expect_failure(StatusCode::kInvalidArgument, {"target_layer_ids", "5"});
}

TEST_F(DraftCheckpoints, AMaskEmbeddingOfItsOwnIsRefused) {
  std::ofstream(folders.draft() / "mask_embedding.pt") << "x";
  expect_failure(StatusCode::kInvalidArgument, {"embedding of their own for the mask"});
}

TEST_F(DraftCheckpoints, ALargerDraftThanThereIsRoomForIsRefusedWithBothNumbers) {
  const DraftRoom fits = room_for(folders.config);
  EXPECT_EQ(fits.layers, 2);
  EXPECT_EQ(fits.kv_width, 16);
  EXPECT_EQ(fits.features, 96);
  EXPECT_EQ(fits.block_size, 4);
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : folders.tensors) elements += static_cast<std::int64_t>(tensor.bytes.size()) / 4;
  EXPECT_EQ(fits.parameters, elements);
  ModelOptions options = folders.options();
  options.draft_room = fits;
  EXPECT_TRUE(load(options).ok()) << load(options).to_string();
  for (std::int64_t DraftRoom::*number : {&DraftRoom::layers, &DraftRoom::kv_width, &DraftRoom::features,
                                          &DraftRoom::parameters, &DraftRoom::block_size}) {
    options.draft_room = fits;
    --((*options.draft_room).*number);
    expect_failure(options, StatusCode::kResourceExhausted,
                   {"has " + std::to_string(fits.*number), "room for " + std::to_string(fits.*number - 1)});
  }
}

TEST_F(DraftCheckpoints, WithoutRoomNoDraftIsLoaded) {
  ModelOptions options = folders.options();
  options.draft_room.reset();
  expect_failure(options, StatusCode::kFailedPrecondition, {"without room for a draft"});
}

TEST_F(DraftCheckpoints, NoFolderIsNotFound) {
  EXPECT_EQ(target(folders.options())->load_draft(folders.draft() / "nowhere").status().code(), StatusCode::kNotFound);
}

TEST_F(DraftCheckpoints, ADraftStoredAsBfloatIsKeptInAQuarterOfItsBytes) {
  const auto model = target(folders.options());
  const std::int64_t wide = std::move(model->load_draft(folders.draft())).value()->bytes();
  folders.store_as_bfloat();
  const std::int64_t half = std::move(model->load_draft(folders.draft())).value()->bytes();
  const std::int64_t table = 256 * 16 * 4;  // of rotary angles, float32 as ever
  EXPECT_LT(half - table, (wide - table) * 3 / 10);
  EXPECT_EQ(proposed().size(), 3u);
}

}  // namespace
}  // namespace levada::model
