// A draft that SpecForge 0.2.0 made, saved and ran (tests/vectors/dflash/specforge): we read it strictly, compute the same
// and would write exactly the same tensors.
#include <ATen/ops/index_select.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "files/tensor_source.h"
#include "nn/dflash_draft.h"
#include "nn/tensor.h"
#include "support/vectors.h"
#include "train/draft_files.h"

namespace levada::train {
namespace {

std::filesystem::path vectors() { return levada::test::vectors() / "dflash/specforge"; }

at::Tensor floats(const files::TensorSource& source, const std::string& name) {
  const files::TensorInfo& info = *source.find(name);
  const at::Tensor out = at::empty(info.shape, at::TensorOptions().dtype(at::kFloat));
  files::decode_to_f32(info, 0, info.elements(), out.data_ptr<float>());
  return out;
}

std::vector<std::int64_t> integers(const files::TensorSource& source, const std::string& name) {
  const files::TensorInfo& info = *source.find(name);
  std::vector<std::int64_t> out(static_cast<std::size_t>(info.elements()));
  std::memcpy(out.data(), info.bytes.data(), info.bytes.size());
  return out;
}

TEST(SpecForge, ItsConfigIsRead) {
  const model::DraftConfig config = model::read_draft_config(vectors() / "config.json").value();
  EXPECT_EQ(config.target_layer_ids, (std::vector<std::int64_t>{1, 4, 6}));
  EXPECT_EQ(config.rope_theta, 50000) << "only rope_parameters is there";
  EXPECT_EQ(config.block_size, 4);
  EXPECT_EQ(config.mask_token_id, 63);
  EXPECT_EQ(config.sliding, (std::vector<bool>{true, false}));
  EXPECT_EQ(config.sliding_window, 6);
  EXPECT_EQ(config.dtype, "float32");
}

TEST(SpecForge, ItsTensorsAreOurs) {
  const model::DraftConfig config = model::read_draft_config(vectors() / "config.json").value();
  const auto file = std::move(files::open_safetensors(vectors() / "model.safetensors")).value();
  std::set<std::string> theirs, ours;
  for (const files::TensorInfo& tensor : file->tensors()) theirs.insert(tensor.name);
  for (const nn::NamedSlice& slice : nn::draft_slices(geometry_of(config))) ours.insert(slice.name);
  EXPECT_EQ(ours, theirs);
}

TEST(SpecForge, ItsDraftComputesTheSameHere) {
  const Status status = nn::guarded("comparing", [] {
    const model::DraftConfig config = model::read_draft_config(vectors() / "config.json").value();
    DraftState state(geometry_of(config), at::kFloat, at::kCPU);
    const Status read =
        read_draft_safetensors(vectors() / "model.safetensors", state.slices, {{"", state.weights_flat}}, false);
    ASSERT_TRUE(read.ok()) << read.to_string();
    const auto probe = std::move(files::open_safetensors(vectors() / "probe.safetensors")).value();
    const std::vector<std::int64_t> tokens = integers(*probe, "tokens");
    nn::DraftSequence sequence;
    sequence.anchors = integers(*probe, "anchors");
    sequence.input_ids = tokens;
    const std::vector<nn::DraftSequence> one{sequence};
    const nn::DraftBatch batch =
        nn::make_draft_batch(state.geometry, one, config.block_size, config.mask_token_id, at::kCPU);
    nn::Scratch scratch(at::kCPU);
    const auto ops = nn::make_cpu_draft_ops();
    nn::DflashDraft draft(state.geometry, *ops, scratch);
    const at::Tensor y =
        draft.forward(batch, state.weights, floats(*probe, "features").narrow(0, 0, sequence.context()),
                      at::index_select(floats(*probe, "embedding"), 0, batch.block_ids));
    const at::Tensor theirs = floats(*probe, "hidden").flatten(0, 1);
    EXPECT_LT(y.sub(theirs).abs().max().item<float>(), 1e-5f);
  });
  ASSERT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace levada::train
