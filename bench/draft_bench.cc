// A draft's training step on a device, by its parts: forward, head and loss, backward, optimizer. SmolLM2's shape, 32
// samples of 512 tokens, 128 anchors each; features lie on the device already.
//
//   draft_bench fused|torch|cpu [STEPS [CHUNK_BLOCKS [SAMPLES]]]     fused and torch: on CUDA
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "device/device.h"
#include "nn/dflash_draft.h"
#include "nn/draft_objective.h"
#include "nn/tensor.h"

namespace levada::nn {
namespace {

constexpr std::int64_t kTokens = 512, kAnchors = 128, kBlock = 8, kVocabulary = 49152, kMask = 16;

DraftGeometry smollm2() {
  DraftGeometry g;
  g.hidden = 576;
  g.intermediate = 1536;
  g.layers = 4;
  g.heads = 9;
  g.kv_heads = 3;
  g.head_dim = 64;
  g.features = 5 * g.hidden;
  g.eps = 1e-5f;
  g.rope_theta = 1e5;
  g.windows.assign(4, 0);
  return g;
}

at::Tensor random(at::IntArrayRef sizes, float scale, at::Device place) {
  static std::uint64_t seed = 1;
  std::mt19937_64 generator(seed++);
  std::normal_distribution<float> normal(0, scale);
  const at::Tensor host = at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
  // A table repeated: drawing 50 million numbers takes longer than the bench.
  std::vector<float> values(65537);
  for (float& value : values) value = normal(generator);
  auto* to = host.data_ptr<float>();
  for (std::int64_t i = 0; i < host.numel(); ++i) to[i] = values[static_cast<std::size_t>(i) % values.size()];
  return host.to(place, at::kBFloat16);
}

struct Milliseconds {
  double batch = 0, forward = 0, objective = 0, backward = 0, optimizer = 0;
  double all() const { return batch + forward + objective + backward + optimizer; }
};

class Bench {
 public:
  Bench(DraftOps& ops, std::int64_t chunk, std::int64_t samples)
      : ops_(ops),
        geometry_(smollm2()),
        scratch_(ops.place()),
        draft_(geometry_, ops, scratch_),
        table_(random({kVocabulary, geometry_.hidden}, 0.05f, ops.place())),
        objective_(table_, {LossKind::kDecay, 4, 0.5}, chunk, ops, scratch_) {
    const at::TensorOptions wide = at::TensorOptions().dtype(at::kFloat).device(ops.place());
    weights_flat_ = random({draft_parameters(geometry_)}, 0.02f, ops.place());
    masters_ = weights_flat_.to(at::kFloat);
    gradients_flat_ = at::zeros(masters_.sizes(), wide);
    first_ = at::zeros(masters_.sizes(), wide);
    second_ = at::zeros(masters_.sizes(), wide);
    std::mt19937 generator(3);
    for (std::int64_t s = 0; s < samples; ++s) {
      std::vector<std::int64_t>& ids = ids_.emplace_back();
      for (std::int64_t t = 0; t < kTokens; ++t) ids.push_back(static_cast<std::int64_t>(generator() % kVocabulary));
      std::vector<std::int64_t> places(kTokens - 1);
      std::iota(places.begin(), places.end(), 0);
      std::shuffle(places.begin(), places.end(), generator);
      places.resize(kAnchors);
      std::sort(places.begin(), places.end());
      anchors_.push_back(std::move(places));
    }
    features_ = random({samples * kTokens, geometry_.features}, 1, ops.place());
  }

  // Stops after every part, or only at the end: then the host prepares while the device works.
  Milliseconds step(std::int64_t number, bool parts) {
    Milliseconds times;
    auto last = std::chrono::steady_clock::now();
    auto lap = [&](double& to) {
      if (parts && !ops_.place().is_cpu()) c10::impl::VirtualGuardImpl(ops_.place().type()).synchronizeDevice(0);
      const auto now = std::chrono::steady_clock::now();
      to = std::chrono::duration<double, std::milli>(now - last).count();
      last = now;
    };
    std::vector<DraftSequence> sequences;
    DraftLabels labels;
    const std::vector<std::int64_t> mask(kTokens, 1);
    for (std::size_t s = 0; s < ids_.size(); ++s) {
      sequences.push_back({anchors_[s], ids_[s]});
      const DraftLabels own = make_draft_labels(sequences.back(), mask, kBlock);
      labels.labels.insert(labels.labels.end(), own.labels.begin(), own.labels.end());
      labels.mask.insert(labels.mask.end(), own.mask.begin(), own.mask.end());
    }
    const DraftBatch batch = make_draft_batch(geometry_, sequences, kBlock, kMask, ops_.place());
    const at::Tensor embeddings = at::index_select(table_, 0, batch.block_ids);
    lap(times.batch);
    const DraftTensors weights = bind_draft(geometry_, weights_flat_),
                       gradients = bind_draft(geometry_, gradients_flat_);
    const at::Tensor features = features_.narrow(0, 0, batch.keys());
    const at::Tensor y = draft_.forward(batch, weights, features, embeddings);
    lap(times.forward);
    const at::Tensor dy = scratch_.get("dy", y.sizes(), y.scalar_type());
    gradients_flat_.zero_();
    const ObjectiveResult result = objective_.run(labels, kBlock, y, dy, [&] {
      lap(times.objective);
      draft_.backward(batch, weights, gradients, features, dy);
    });
    lap(times.backward);
    const double norm = std::sqrt(ops_.sum_of_squares(gradients_flat_)) / result.weight;
    AdamStep adam;
    adam.step = number;
    adam.learning_rate = 1e-3;
    adam.grad_scale = std::min(1.0, 1 / norm) / result.weight;
    ops_.adamw(adam, gradients_flat_, masters_, first_, second_, weights_flat_);
    lap(times.optimizer);
    loss_ = result.num / result.weight;
    return times;
  }
  double loss() const { return loss_; }
  const at::Tensor& masters() const { return masters_; }

 private:
  DraftOps& ops_;
  DraftGeometry geometry_;
  Scratch scratch_;
  DflashDraft draft_;
  at::Tensor table_;
  DraftObjective objective_;
  at::Tensor weights_flat_, masters_, gradients_flat_, first_, second_, features_;
  std::vector<std::vector<std::int64_t>> ids_, anchors_;
  double loss_ = 0;
};

Result<std::unique_ptr<DraftOps>> ops_of(const std::string& kind) {
  if (kind == "cpu") return make_cpu_draft_ops();
  LEVADA_RETURN_IF_ERROR(load_torch_cuda());
  if (kind == "torch") return make_torch_draft_ops(at::Device(at::kCUDA, 0));
  return make_cuda_draft_ops(at::Device(at::kCUDA, 0));
}

Status run(const std::string& kind, std::int64_t steps, std::int64_t chunk, std::int64_t samples) {
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<DraftOps> ops, ops_of(kind));
  std::unique_ptr<device::Device> gpu;
  std::int64_t free = 0;
  if (kind != "cpu") {
    LEVADA_ASSIGN_OR_RETURN(gpu, device::open_device(device::DeviceKind::kCuda, 0));
    free = gpu->free_bytes();
  }
  return guarded("the bench", [&] {
    Bench bench(*ops, chunk, samples);
    Milliseconds best;
    for (std::int64_t step = 1; step <= steps; ++step) {
      const Milliseconds times = bench.step(step, true);
      if (step == 1 || times.all() < best.all()) best = times;
      if (step == 1) std::printf("loss %.4f; first step %.1f ms\n", bench.loss(), times.all());
    }
    double whole = 1e9;
    for (std::int64_t step = 1; step <= steps; ++step) {
      ops->sum_of_squares(bench.masters());  // waits for the device
      const auto start = std::chrono::steady_clock::now();
      bench.step(steps + step, false);
      ops->sum_of_squares(bench.masters());
      const auto end = std::chrono::steady_clock::now();
      whole = std::min(whole, std::chrono::duration<double, std::milli>(end - start).count());
    }
    std::printf("%s, without stopping between parts: %.2f ms\n", kind.c_str(), whole);
    std::printf(
        "%s, %ld samples, chunks of %ld blocks: best of %ld steps %.2f ms: batch %.2f, forward %.2f, head and "
        "loss %.2f, backward %.2f, optimizer %.2f; loss %.4f; %.2f GiB\n",
        kind.c_str(), static_cast<long>(samples), static_cast<long>(chunk), static_cast<long>(steps), best.all(),
        best.batch, best.forward, best.objective, best.backward, best.optimizer, bench.loss(),
        gpu ? static_cast<double>(free - gpu->free_bytes()) / (1 << 30) : 0.0);
  });
}

}  // namespace
}  // namespace levada::nn

int main(int argc, char** argv) {
  auto number = [&](int i, std::int64_t usual) { return argc > i ? std::atoll(argv[i]) : usual; };
  const levada::Status status =
      levada::nn::run(argc > 1 ? argv[1] : "fused", number(2, 20), number(3, 128), number(4, 32));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
