// Writes a small trained draft and what we compute with it, for tests/interop: draft_interop FOLDER.
// draft/ is the export; beside it raw little-endian arrays and probe.json with their shapes.
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>

#include <cstdio>
#include <fstream>

#include "nn/dflash_draft.h"
#include "nn/tensor.h"
#include "train/draft_files.h"
#include "train/draft_state.h"
#include "train/frozen_tensors.h"
#include "train/trainer_support_test.h"

namespace levada::train {
namespace {

using namespace test;
constexpr std::int64_t kTokens = 40;

void write(const std::filesystem::path& folder, const std::string& name, const at::Tensor& tensor,
           std::string& shapes) {
  const at::Tensor flat = tensor.contiguous();
  std::ofstream(folder / name, std::ios::binary)
      .write(static_cast<const char*>(flat.data_ptr()), static_cast<std::streamsize>(flat.nbytes()));
  shapes += (shapes.empty() ? "{\"" : ", \"") + name + "\": [";
  for (std::int64_t d = 0; d < flat.dim(); ++d) shapes += (d == 0 ? "" : ", ") + std::to_string(flat.size(d));
  shapes += "]";
}

at::Tensor integers(const std::vector<std::int64_t>& values) {
  const at::Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(at::kLong));
  std::copy(values.begin(), values.end(), out.data_ptr<std::int64_t>());
  return out;
}

Status run(const std::filesystem::path& folder) {
  const model::DraftConfig config = small_config();
  Options options = small_options();
  options.learning_rate = 0.05;  // far enough from the first weights that every tensor matters
  const auto tables = std::static_pointer_cast<const FrozenTensors>(small_tables(config));
  LEVADA_ASSIGN_OR_RETURN(const auto trainer, DflashTrainer::create(options, config, tables));
  const Samples samples(config, 8);
  for (std::size_t step = 0; step < 4; ++step) {
    LEVADA_RETURN_IF_ERROR(trainer->step(samples.some(4 * step, 4)).status());
  }
  LEVADA_RETURN_IF_ERROR(trainer->export_to(folder / "draft"));

  return nn::guarded("probing the draft", [&] {
    DraftState state(geometry_of(config), at::kFloat, at::kCPU);
    const Status read =
        read_draft_safetensors(folder / "draft/model.safetensors", state.slices, {{"", state.weights_flat}}, false);
    LEVADA_CHECK(read.ok(), read.to_string().c_str());
    const at::Tensor features = random_table(kTokens, config.features(), 5, "float32");
    nn::DraftSequence sequence;
    sequence.anchors = {1, 5, 6, 20, 39};
    const OwnedSample sample(config, kTokens, 6);
    sequence.input_ids = sample.ids;
    const std::vector<nn::DraftSequence> one{sequence};
    const nn::DraftBatch batch =
        nn::make_draft_batch(state.geometry, one, config.block_size, config.mask_token_id, at::kCPU);
    nn::Scratch scratch(at::kCPU);
    const auto ops = nn::make_cpu_draft_ops();
    nn::DflashDraft draft(state.geometry, *ops, scratch);
    const at::Tensor y = draft.forward(batch, state.weights, features.narrow(0, 0, sequence.context()),
                                       at::index_select(tables->embedding, 0, batch.block_ids));
    std::string shapes;
    write(folder, "features", features, shapes);
    write(folder, "embedding", tables->embedding, shapes);
    write(folder, "head", tables->head, shapes);
    write(folder, "tokens", integers(sample.ids), shapes);
    write(folder, "anchors", integers(sequence.anchors), shapes);
    write(folder, "logits", at::matmul(y, tables->head.t()).view({-1, config.block_size, config.vocabulary}), shapes);
    std::ofstream(folder / "probe.json") << shapes << "}\n";
  });
}

}  // namespace
}  // namespace levada::train

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: draft_interop FOLDER\n"), 2;
  const levada::Status status = levada::train::run(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
