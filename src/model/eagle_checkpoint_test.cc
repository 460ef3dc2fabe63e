// What load_draft() accepts of EAGLE-3 drafts and what it refuses, by name and with both numbers.
#include "model/eagle_support_test.h"

namespace levada::model {
namespace {

class EagleCheckpoints : public testing::Test {
 protected:
  Status load(const ModelOptions& options) {
    folders.write();
    return std::move(load_model(folders.target(), options, *device)).value()->load_draft(folders.draft()).status();
  }
  void expect_failure(StatusCode code, const std::vector<std::string>& words) {
    expect_failure(folders.options(), code, words);
  }
  void expect_failure(const ModelOptions& options, StatusCode code, const std::vector<std::string>& words) {
    const Status status = load(options);
    EXPECT_EQ(status.code(), code) << status.to_string();
    for (const std::string& word : words)
      EXPECT_NE(status.to_string().find(word), std::string::npos) << status.to_string();
  }
  std::vector<core::Token> proposed() {
    folders.write();
    Bench bench(folders.target(), folders.options(), *device);
    const auto draft = bench.model->load_draft(folders.draft());
    EXPECT_TRUE(draft.ok()) << draft.status().to_string();
    if (!draft.ok()) return {};
    Sequence sequence = bench.sequence({5, 17, 30, 41, 2, 9}, 9);
    return run_slice(bench, sequence, {6, 0, 7}, draft.value()).proposed;
  }
  // The target's table.
  StoredTensor embedding() const {
    const auto target = std::move(files::open_safetensors(folders.target() / "model.safetensors")).value();
    const files::TensorInfo& info = *target->find("model.embed_tokens.weight");
    return {"F32", info.shape, {reinterpret_cast<const char*>(info.bytes.data()), info.bytes.size()}};
  }

  EagleFolders folders;
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
};

TEST_F(EagleCheckpoints, EveryPublishedSpellingIsTheSameDraft) {
  const std::vector<core::Token> plain = proposed();
  EXPECT_EQ(plain.size(), 7u);
  for (const auto& [name, tensor] : std::map(folders.tensors)) {
    if (name.starts_with("midlayer.")) folders.rename(name, "layers.0." + name.substr(9));
  }
  EXPECT_EQ(proposed(), plain) << "layers.0.";
  for (const auto& [name, tensor] : std::map(folders.tensors)) folders.rename(name, "model." + name);
  EXPECT_EQ(proposed(), plain) << "model.";
  folders.tensors.erase("model.t2d");
  EXPECT_EQ(proposed(), plain) << "without t2d";
  folders.tensors["embed_tokens.weight"] = embedding();
  EXPECT_EQ(proposed(), plain) << "the target's own table";
}

TEST_F(EagleCheckpoints, AnEmbeddingAndNormsOfItsOwnAreUsed) {
  const std::vector<core::Token> plain = proposed();
  StoredTensor table = embedding();
  std::rotate(table.bytes.begin(), table.bytes.begin() + 32 * 4, table.bytes.end());  // each token's is the next one's
  folders.tensors["embed_tokens.weight"] = table;
  EXPECT_NE(proposed(), plain);
  folders.tensors.erase("embed_tokens.weight");
  for (int i = 0; i < 3; ++i) {
    folders.tensors["fc_norm." + std::to_string(i) + ".weight"] = folders.tensors["midlayer.hidden_norm.weight"];
  }
  EXPECT_NE(proposed(), plain);
  folders.tensors.erase("fc_norm.1.weight");
  expect_failure(StatusCode::kDataLoss, {"fc_norm.1.weight"});
}

TEST_F(EagleCheckpoints, AMissingAnUnknownAndAMisshapenTensorAreNamed) {
  const StoredTensor norm = folders.tensors["midlayer.hidden_norm.weight"];
  folders.tensors.erase("midlayer.hidden_norm.weight");
  expect_failure(StatusCode::kDataLoss, {"tensor midlayer.hidden_norm.weight is missing"});
  folders.tensors["midlayer.hidden_norm.weight"] = norm;
  folders.tensors["layers.0.hidden_norm.weight"] = norm;
  expect_failure(StatusCode::kDataLoss,
                 {"midlayer.hidden_norm.weight and layers.0.hidden_norm.weight are the same one"});
  folders.tensors.erase("layers.0.hidden_norm.weight");
  folders.tensors["midlayer.self_attn.q_norm.weight"] = norm;
  expect_failure(StatusCode::kDataLoss, {"unknown tensor midlayer.self_attn.q_norm.weight for an EAGLE-3 draft"});
  folders.tensors.erase("midlayer.self_attn.q_norm.weight");
  folders.config.heads = 4;
  expect_failure(StatusCode::kDataLoss, {"q_proj.weight has shape", "[32, 64]", "[64, 64]"});
}

TEST_F(EagleCheckpoints, TheVocabularyMustBePartOfTheTargets) {
  folders.tensors.erase("d2t");
  expect_failure(StatusCode::kDataLoss, {"tensor d2t is missing", "40", "64"});
  folders.offsets[39] = 25;
  folders.tensors["d2t"] = stored_offsets(folders.offsets);
  expect_failure(StatusCode::kDataLoss, {"d2t", "row 39", "25"});
  folders.offsets[39] = folders.offsets[38] - 1;
  folders.tensors["d2t"] = stored_offsets(folders.offsets);
  expect_failure(StatusCode::kDataLoss, {"d2t", "two rows"});
  folders.offsets[39] = 24;
  folders.tensors["d2t"] = stored_offsets(folders.offsets);
  expect_failure(StatusCode::kDataLoss, {"t2d and d2t disagree about token 58"});
  folders.tensors["t2d"].shape = {32, 2};
  expect_failure(StatusCode::kDataLoss, {"t2d has shape", "[32, 2]", "[64]"});
}

TEST_F(EagleCheckpoints, WhatDoesNotFitTheTargetOrTheRoomIsNamedWithBothNumbers) {
  const DraftConfig fits = folders.config;
  folders.config.num_target_layers = 8;
  expect_failure(StatusCode::kInvalidArgument, {"num_target_layers is 8, the target's is 6"});
  folders.config = fits;
  folders.config.vocabulary = 65;
  expect_failure(StatusCode::kInvalidArgument, {"vocab_size is 65, the target's is 64"});
  folders.config = fits;
  folders.config.hidden = 64;
  expect_failure(StatusCode::kInvalidArgument, {"hidden_size is 64, the target's is 32"});
  folders.config = fits;
  folders.config.target_layer_ids = {0, 2, 5};
  expect_failure(StatusCode::kInvalidArgument, {"target_layer_ids", "5"});
  folders.config = fits;
  ModelOptions options = folders.options();
  options.draft_room->kv_width = 15;
  expect_failure(options, StatusCode::kResourceExhausted, {"has 16 numbers of a key", "room for 15"});
  EXPECT_EQ(room_for(fits).kind, DraftKind::kEagle3);
  options.draft_room = room_for(fits);
  EXPECT_TRUE(load(options).ok());
}

TEST_F(EagleCheckpoints, ADraftOfTheOtherKindIsRefused) {
  ModelOptions options = folders.options();
  options.draft_room->kind = DraftKind::kDflash;
  expect_failure(options, StatusCode::kInvalidArgument, {"EAGLE3 draft", "room for DFLASH"});
  DraftFolders dflash;
  const auto target = std::move(load_model(folders.target(), folders.options(), *device)).value();
  const Status status = target->load_draft(dflash.draft()).status();
  EXPECT_NE(status.to_string().find("room for EAGLE3"), std::string::npos) << status.to_string();
  EXPECT_TRUE(target->kv_layout().of_next_token());
  EXPECT_FALSE(std::move(load_model(dflash.target(), dflash.options(), *device)).value()->kv_layout().of_next_token());
}

}  // namespace
}  // namespace levada::model
