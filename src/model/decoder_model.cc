#include "model/decoder_model.h"

#include <ATen/ops/empty.h>

#include <mutex>

#include "model/draft_checkpoint.h"
#include "model/draft_runner.h"
#include "model/eagle_runner.h"
#include "model/host_sampling.h"
#include "model/paged_kv_pool.h"
#include "model/rope.h"
#include "model/rough_matrix.h"
#include "nn/tensor.h"

namespace levada::model {
namespace {

nn::GqaShape shape_of(const ModelConfig& c) {
  return {c.hidden, c.heads, c.kv_heads, c.head_dim, c.intermediate, c.norm_eps};
}

at::Tensor make_cos_sin(const ModelConfig& config, std::int64_t context, at::Device place) {
  const at::Tensor host = at::empty({context, config.head_dim}, at::TensorOptions().dtype(at::kFloat));
  fill_cos_sin(config.rope, config.head_dim, context, host.data_ptr<float>());
  return host.to(place);
}

core::KvLayout layout_of(const DecoderParts& parts) {
  std::optional<DraftPlanes> draft;
  if (parts.draft_room.has_value()) draft = DraftPlanes{*parts.draft_room, parts.kv_dtype};
  return gqa_layout(parts.checkpoint->config(), parts.kv_dtype, parts.page_size_tokens, KvScaling::kNone, draft);
}

// A pool with the views that the layers use: [pages, page_size, heads, elements / heads], a draft's [.., elements].
class DecoderKvPool final : public PagedKvPool {
 public:
  static Result<std::unique_ptr<KvPool>> make(const core::KvLayout& layout, std::int32_t pages, std::int64_t heads,
                                              device::Device& device) {
    std::unique_ptr<DecoderKvPool> pool(new DecoderKvPool(layout, pages));
    LEVADA_RETURN_IF_ERROR(pool->allocate(device));
    LEVADA_RETURN_IF_ERROR(nn::guarded("making the KV pool", [&] {
      for (std::size_t p = 0; p < layout.planes().size(); ++p) {
        std::vector<at::Tensor>& layers = pool->tensors_.emplace_back();
        for (std::size_t l = 0; l < layout.planes()[p].layers.size(); ++l) {
          const device::TensorView plane = pool->plane(static_cast<int>(p), static_cast<int>(l));
          const at::Tensor tokens = nn::wrap(plane, device.index());
          const bool target = layout.planes()[p].group == core::kTargetGroup;
          layers.push_back(target ? tokens.unflatten(2, {heads, plane.shape[2] / heads}) : tokens);
        }
      }
    }));
    return std::unique_ptr<KvPool>(std::move(pool));
  }
  const at::Tensor& tensor(std::size_t plane, std::size_t layer) const { return tensors_[plane][layer]; }
  // REQUIRES: a layout with draft planes, which are its last two.
  std::vector<DraftLayerPlanes> draft_planes() const {
    std::vector<DraftLayerPlanes> planes;
    const std::size_t k = tensors_.size() - 2;
    for (std::size_t l = 0; l < tensors_[k].size(); ++l) planes.push_back({tensors_[k][l], tensors_[k + 1][l]});
    return planes;
  }

 private:
  using PagedKvPool::PagedKvPool;
  std::vector<std::vector<at::Tensor>> tensors_;  // [plane][layer]
};

class DecoderModel final : public Model {
 public:
  DecoderModel(DecoderParts parts, device::Device& device)
      : parts_(std::move(parts)),
        config_(parts_.checkpoint->config()),
        shape_(shape_of(config_)),
        layout_(layout_of(parts_)),
        device_(device),
        stream_(std::move(device.make_stream()).value()),
        weights_(load_weights(*parts_.checkpoint, nn::scalar_type(parts_.info.weight_dtype), parts_.as_stored,
                              *parts_.backend, parts_.host->pool)),
        head_(weights_.final_norm, config_.norm_eps, weights_.head),
        cos_sin_(make_cos_sin(config_, parts_.info.context_length_tokens, parts_.backend->place())),
        workspace_(shape_, *parts_.backend),
        drafts_(make_draft_opener(config_, parts_.draft_room)) {}

  const core::ModelInfo& info() const override { return parts_.info; }
  const device::Device& device() const override { return device_; }
  const core::KvLayout& kv_layout() const override { return layout_; }
  std::string backend() const override {
    std::string name = parts_.backend->name();
    if (!weights_.stored.empty()) {
      name += ", weights " + weights_.stored + " as stored by " + parts_.host->ops->quant_name();
    }
    if (!weights_.converted.empty()) name += ", weights converted: " + weights_.converted;
    name += ", " + std::to_string(parts_.host->pool.threads()) + " threads";
    const std::vector<int>& cores = parts_.host->pool.cores();
    if (!cores.empty()) name += " pinned to cores";
    for (const int core : cores) name += " " + std::to_string(core);
    return name;
  }
  Result<std::unique_ptr<KvPool>> make_kv_pool(std::int32_t pages) override {
    return DecoderKvPool::make(layout_, pages, config_.kv_heads, device_);
  }
  Result<std::shared_ptr<const Draft>> load_draft(const std::filesystem::path& folder) override {
    LEVADA_ASSIGN_OR_RETURN(const auto source, drafts_->open(folder));
    std::shared_ptr<const Draft> draft;
    const bool rough = parts_.info.weight_dtype != DType::kF32 || !source->wide();
    LEVADA_RETURN_IF_ERROR(nn::guarded("loading a draft", [&] {
      const std::int64_t positions = parts_.info.context_length_tokens;
      if (source->config().kind == DraftKind::kEagle3) {
        draft = std::make_shared<CpuEagle>(*source, rough, weights_.embedding, positions);
      } else {
        draft = std::make_shared<CpuDraft>(*source, rough, rough ? rough_head() : weights_.head, positions);
      }
    }));
    return draft;
  }
  Result<std::unique_ptr<Forward>> begin(const core::StepPlan& plan, KvPool& pool,
                                         const std::shared_ptr<const Draft>& draft) override;
  bool runs_ahead() const override { return false; }
  void settle_thread() override { parts_.host->pool.pin_caller(); }
  std::vector<MemoryUse> memory() const override { return {{"weights", weights_.bytes}}; }

 private:
  friend class DecoderForward;
  // The head as rough drafts want it, made once, by the first that comes.
  const nn::Projection& rough_head() {
    std::call_once(rough_head_made_, [&] {
      for (const nn::Matrix& part : weights_.head.parts) rough_head_.parts.push_back(to_q8_0(part));
    });
    return rough_head_;
  }
  // At work from now on; null: none is.
  void use(const std::shared_ptr<const Draft>& draft) {
    if (draft == nullptr || (runner_ != nullptr && runner_->draft() == draft.get())) return;
    kernels::Ops& ops = *parts_.host->ops;
    if (auto eagle = std::dynamic_pointer_cast<const CpuEagle>(draft)) {
      runner_ = std::make_unique<EagleRunner>(std::move(eagle), *parts_.backend, ops);
      return;
    }
    auto own = std::dynamic_pointer_cast<const CpuDraft>(draft);
    LEVADA_CHECK(own != nullptr, "a draft loaded by this model");
    runner_ = std::make_unique<DraftRunner>(std::move(own), *parts_.backend, ops, weights_.embedding);
  }
  DecoderParts parts_;
  const ModelConfig& config_;
  nn::GqaShape shape_;
  core::KvLayout layout_;
  device::Device& device_;
  const std::unique_ptr<device::Stream> stream_;
  Weights weights_;
  nn::LmHead head_;
  at::Tensor cos_sin_;
  nn::GqaWorkspace workspace_;
  const std::shared_ptr<const DraftOpener> drafts_;
  std::once_flag rough_head_made_;
  nn::Projection rough_head_;
  std::unique_ptr<StepDrafter> runner_;  // of the last draft that a step was given
  bool forward_alive_ = false;
};

class DecoderForward final : public Forward {
 public:
  DecoderForward(DecoderModel& model, const core::StepPlan& plan, DecoderKvPool& pool, StepGeometry geometry)
      : model_(model),
        plan_(plan),
        pool_(pool),
        geometry_(std::move(geometry)),
        draft_(plan.draft == core::kNoDraft ? nullptr : model.runner_.get()) {
    LEVADA_CHECK(!model_.forward_alive_, "one Forward at a time: it borrows the workspace");
    model_.workspace_.resize(static_cast<std::int64_t>(plan.tokens.size()));
    inputs_ = backend().prepare({geometry_.batch(), plan.tokens, plan.positions}, model_.cos_sin_);
    backend().embed(*inputs_, model_.weights_.embedding, model_.workspace_.hidden);
    if (draft_ != nullptr) draft_->begin(plan_, geometry_.batch(), pool_.draft_planes());
    model_.forward_alive_ = true;
  }
  ~DecoderForward() override { model_.forward_alive_ = false; }

  Status all_layers() override {
    for (int l = 0; l < model_.config_.layers; ++l) LEVADA_RETURN_IF_ERROR(layer(l));
    return {};
  }

  Status layer(int layer) override {
    LEVADA_CHECK(layer == next_layer_ && layer < model_.config_.layers, "layers run in order, each once");
    ++next_layer_;
    const auto l = static_cast<std::size_t>(layer);
    return nn::guarded("computing a layer", [&] {
      nn::run_gqa_layer(backend(), model_.shape_, model_.weights_.layers[l], *inputs_, pool_.tensor(0, l),
                        pool_.tensor(1, l), model_.workspace_);
      if (draft_ != nullptr) draft_->after_layer(layer, model_.workspace_.hidden);
    });
  }

  device::TensorView hidden() const override { return nn::view(model_.workspace_.hidden); }

  Result<DeviceRows> device_rows(std::int32_t first, std::int32_t count, bool final_norm) override {
    LEVADA_ASSIGN_OR_RETURN(const device::TensorView rows, host_rows(first, count, final_norm));  // the device's own
    return DeviceRows{rows, model_.stream_.get()};
  }

  Result<device::TensorView> host_rows(std::int32_t first, std::int32_t count, bool final_norm) override {
    LEVADA_CHECK(first >= 0 && count > 0 && first + count <= model_.workspace_.hidden.size(0), "rows of this step");
    LEVADA_CHECK(!final_norm || next_layer_ == model_.config_.layers, "the final norm reads the last layer");
    LEVADA_RETURN_IF_ERROR(nn::guarded("reading hidden states", [&] {
      at::Tensor rows = model_.workspace_.hidden.narrow(0, first, count);
      if (final_norm) rows = model_.head_.normed(backend(), rows);
      host_rows_ = rows.to(at::kCPU, at::kFloat);  // the same memory where nothing has to move
    }));
    return nn::view(host_rows_);
  }

  Result<device::TensorView> logits(std::span<const std::int32_t> rows) override {
    for (std::int32_t row : rows) {
      LEVADA_CHECK(row >= 0 && row < model_.workspace_.hidden.size(0), "logits of a row of this step");
    }
    device::TensorView result;
    LEVADA_RETURN_IF_ERROR(nn::guarded("computing logits", [&] {
      result = nn::view(model_.head_.logits(backend(), model_.workspace_.hidden, rows));
    }));
    return result;
  }

  Result<std::unique_ptr<SampledTokens>> sample() override {
    StepTokens tokens;
    if (!plan_.samples.empty()) {
      LEVADA_ASSIGN_OR_RETURN(const device::TensorView values, logits(sampled_rows(plan_)));
      tokens.sampled = sample_on_host(plan_, values, *model_.parts_.host->ops);
    }
    if (draft_ != nullptr) {
      LEVADA_RETURN_IF_ERROR(
          nn::guarded("drafting", [&] { tokens.proposed = draft_->propose(plan_, tokens.sampled); }));
    }
    return ready_tokens(std::move(tokens));
  }

 private:
  nn::Backend& backend() { return *model_.parts_.backend; }
  DecoderModel& model_;
  const core::StepPlan& plan_;
  DecoderKvPool& pool_;
  StepGeometry geometry_;
  StepDrafter* const draft_;
  std::unique_ptr<nn::StepInputs> inputs_;
  at::Tensor host_rows_;
  int next_layer_ = 0;
};

Result<std::unique_ptr<Forward>> DecoderModel::begin(const core::StepPlan& plan, KvPool& pool,
                                                     const std::shared_ptr<const Draft>& draft) {
  auto* own = dynamic_cast<DecoderKvPool*>(&pool);
  LEVADA_CHECK(own != nullptr && own->layout().identity() == layout_.identity(), "a pool made by this model");
  const StepLimits limits{config_.vocabulary, parts_.info.context_length_tokens, own->pages(),
                          layout_.page_size_tokens(), draft == nullptr ? 0 : draft->config().block_size};
  LEVADA_ASSIGN_OR_RETURN(StepGeometry geometry, StepGeometry::make(plan, limits));
  std::unique_ptr<Forward> forward;
  LEVADA_RETURN_IF_ERROR(nn::guarded("starting a step", [&] {
    use(draft);
    forward = std::make_unique<DecoderForward>(*this, plan, *own, std::move(geometry));
  }));
  return forward;
}

}  // namespace

Result<std::unique_ptr<Model>> make_decoder_model(DecoderParts parts, device::Device& device) {
  std::unique_ptr<Model> model;
  LEVADA_RETURN_IF_ERROR(
      nn::guarded("loading the weights", [&] { model = std::make_unique<DecoderModel>(std::move(parts), device); }));
  return model;
}

}  // namespace levada::model
