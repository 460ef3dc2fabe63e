// What: CudaForward, one step of a CudaModel.
// Owner: the engine worker, for the time of the step; borrows model, plan and pool.
// Thread: the worker's.
// Invariant: its inputs are on their way to the device already, and what attends its rows is planned for it.
#pragma once

#include "model/cuda/cuda_model.h"

namespace levada::model {

class CudaForward final : public Forward {
 public:
  CudaForward(CudaModel& model, const core::StepPlan& plan, PagedKvPool& pool, const CudaModel::Way& way,
              const StepArrays& arrays);

  Status layer(int layer) override;
  Status all_layers() override;
  device::TensorView hidden() const override { return layers().hidden(rows_); }
  Result<DeviceRows> device_rows(std::int32_t first, std::int32_t count, bool final_norm) override;
  Result<device::TensorView> host_rows(std::int32_t first, std::int32_t count, bool final_norm) override;
  Result<device::TensorView> logits(std::span<const std::int32_t> rows) override;
  Result<std::unique_ptr<SampledTokens>> sample() override;

 private:
  CudaLayers& layers() const { return way_.recorded ? *model_.graph_layers_ : *model_.eager_layers_; }
  Result<device::TensorView> to_host(const device::TensorView& from);

  CudaModel& model_;
  const core::StepPlan& plan_;
  PagedKvPool& pool_;
  const CudaModel::Way way_;
  const std::int32_t rows_;
  const StepArrays arrays_;
  std::vector<float> host_;
  int next_layer_ = 0;
};

}  // namespace levada::model
