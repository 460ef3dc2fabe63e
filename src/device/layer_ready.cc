#include "device/layer_ready.h"

namespace levada::device {

LayerReady::LayerReady(int layers) : gates_(static_cast<std::size_t>(layers)) {
  LEVADA_CHECK(layers >= 1, "a batch of loads has at least one layer");
}

void LayerReady::mark(int layer, std::shared_ptr<Event> event) {
  LEVADA_CHECK(event == nullptr || event->recorded(), "the event is recorded before the gate is marked");
  {
    std::lock_guard lock(mutex_);
    LEVADA_CHECK(layer >= 0 && static_cast<std::size_t>(layer) < gates_.size(), "a gate of this batch");
    Gate& gate = gates_[static_cast<std::size_t>(layer)];
    LEVADA_CHECK(!gate.recorded, "a gate is marked once");
    gate.event = std::move(event);
    gate.recorded = true;
  }
  changed_.notify_all();
}

void LayerReady::fail(Status status) {
  LEVADA_CHECK(!status.ok(), "a failure says why");
  {
    std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = std::move(status);
  }
  changed_.notify_all();
}

Status LayerReady::wait(int layer, Stream& stream) {
  std::shared_ptr<Event> event;
  {
    std::unique_lock lock(mutex_);
    LEVADA_CHECK(layer >= 0 && static_cast<std::size_t>(layer) < gates_.size(), "a gate of this batch");
    const Gate& gate = gates_[static_cast<std::size_t>(layer)];
    changed_.wait(lock, [&] { return gate.recorded || !failure_.ok(); });
    if (!failure_.ok()) return failure_;
    event = gate.event;
  }
  return event == nullptr ? Status() : stream.wait(*event);
}

}  // namespace levada::device
