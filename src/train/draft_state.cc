#include "train/draft_state.h"

#include <ATen/ops/zeros.h>

#include <cmath>
#include <numbers>

#include "kernels/philox.h"

namespace levada::train {
namespace {

constexpr float kSpread = 0.02f;

// A standard normal per counter, by Box and Muller.
float normal_at(std::uint64_t index, std::uint64_t seed) {
  constexpr std::uint32_t kStream = 0x77656967;  // apart from the anchors' counters
  const auto words =
      kernels::philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), kStream, kStream},
                      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const double radius = std::sqrt(-2 * std::log((words[0] + 1.0) * 0x1p-32));
  return static_cast<float>(radius * std::cos(2 * std::numbers::pi * words[1] * 0x1p-32));
}

}  // namespace

nn::DraftGeometry geometry_of(const model::DraftConfig& config) {
  nn::DraftGeometry g;
  g.hidden = config.hidden;
  g.intermediate = config.intermediate;
  g.layers = config.layers;
  g.heads = config.heads;
  g.kv_heads = config.kv_heads;
  g.head_dim = config.head_dim;
  g.features = config.features();
  g.eps = static_cast<float>(config.norm_eps);
  g.rope_theta = config.rope_theta;
  for (bool slides : config.sliding) g.windows.push_back(slides ? config.sliding_window : 0);
  g.attention_bias = config.attention_bias;
  return g;
}

DraftState::DraftState(const nn::DraftGeometry& shape, at::ScalarType type, at::Device place)
    : geometry(shape), slices(nn::draft_slices(shape)) {
  const std::int64_t count = nn::draft_parameters(shape);
  const auto wide = at::TensorOptions().dtype(at::kFloat).device(place);
  weights_flat = at::zeros({count}, wide.dtype(type));
  masters = at::zeros({count}, wide);
  first_moment = at::zeros({count}, wide);
  second_moment = at::zeros({count}, wide);
  gradients_flat = at::zeros({count}, wide);
  weights = nn::bind_draft(geometry, weights_flat);
  gradients = nn::bind_draft(geometry, gradients_flat);
}

void DraftState::draw_masters(std::uint64_t seed, float output_norm) {
  const at::Tensor host = masters.cpu();
  for (const nn::NamedSlice& slice : slices) {
    auto* values = host.data_ptr<float>() + slice.first;
    const bool matrix = slice.shape.size() == 2;
    float fixed = slice.name.ends_with("norm.weight") ? 1.f : 0.f;
    if (slice.name == "norm.weight") fixed = output_norm;
    for (std::int64_t i = 0; i < slice.count; ++i) {
      values[i] = matrix ? kSpread * normal_at(static_cast<std::uint64_t>(slice.first + i), seed) : fixed;
    }
  }
  masters.copy_(host);
  round_weights();
}

void DraftState::round_weights() { weights_flat.copy_(masters); }

std::int64_t DraftState::bytes() const {
  std::size_t total = 0;
  for (const at::Tensor* flat : {&weights_flat, &masters, &first_moment, &second_moment, &gradients_flat}) {
    total += flat->nbytes();
  }
  return static_cast<std::int64_t>(total);
}

}  // namespace levada::train
