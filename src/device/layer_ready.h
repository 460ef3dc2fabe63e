// What: LayerReady, one gate per layer: "the bytes of layer l are in place" (law 14).
// Owner: one per batch of loads or per step; shared by its producer and the layer loop through a reference.
// Thread: mark() from the producing thread, wait() from the layer loop.
// Invariant: a gate waits for the flag "recorded" and only then for the event; a failed producer fails the waiter.
//
//   empty ──mark(layer, event)──> recorded ──event ready──> passed          fail(status) ──> failed (all layers)
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "device/device.h"

namespace levada::device {

class LayerReady {
 public:
  explicit LayerReady(int layers);
  // The event may be null when the bytes are in place already.
  void mark(int layer, std::shared_ptr<Event> event);  // shared: producer may go before the last waiter
  void fail(Status status);
  // Blocks until marked, then orders `stream` behind the event.
  Status wait(int layer, Stream& stream);

 private:
  struct Gate {
    bool recorded = false;
    std::shared_ptr<Event> event;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Gate> gates_;
  Status failure_;
};

}  // namespace levada::device
