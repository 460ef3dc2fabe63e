#include "bench/captures.h"

#include <algorithm>

namespace levada::bench {
namespace {

constexpr std::int32_t kLayers = 5;

}  // namespace

Captures::Captures(const core::ModelInfo& info, std::int32_t samples, std::int32_t tokens, device::Device* device)
    : hidden_size_(info.hidden_size) {
  for (std::int32_t i = 0; i < std::min(info.num_layers, kLayers); ++i)
    layers_.push_back(i * info.num_layers / kLayers);
  layers_.erase(std::unique(layers_.begin(), layers_.end()), layers_.end());
  const std::uint64_t sample =
      layers_.size() * 2 * static_cast<std::uint64_t>(tokens) * static_cast<std::uint64_t>(hidden_size_);
  // One more than asked for, so that no piece of free memory is too short by an alignment.
  arena_ = store::Arena::create(
               {.bytes = static_cast<std::uint64_t>(samples + 1) * sample + (1 << 20), .device = device}, clock_)
               .value();
  publisher_ = std::make_unique<capture::Publisher>(
      *arena_,
      capture::Publisher::Options{{.store_id = "bench", .layers = info.num_layers, .hidden_size = hidden_size_},
                                  1'000'000},
      metrics_);
}

void Captures::open(std::int32_t tokens, std::function<void(Result<core::CaptureRequest>)> on_opened) {
  capture::SampleSpec spec{.store_id = "bench", .sample_id = "bench:" + std::to_string(++samples_)};
  spec.features.push_back({"hidden_states", layers_, DType::kBF16});
  publisher_->open(std::move(spec), tokens, [this, on_opened](Result<capture::Publisher::Opened> opened) {
    if (!opened.ok()) return on_opened(opened.status());
    core::CaptureRequest request;
    request.id = std::get<core::CaptureId>(*opened);  // no sample comes twice, so none is known
    request.layers = layers_;
    on_opened(std::move(request));
  });
}

void Captures::seal(core::CaptureId id, std::function<void(Status)> on_sealed) {
  publisher_->seal(id, [on_sealed](const Result<capture::Published>& sealed) { on_sealed(sealed.status()); });
}

}  // namespace levada::bench
