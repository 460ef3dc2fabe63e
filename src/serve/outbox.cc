#include "serve/outbox.h"

namespace levada::serve {

void Outbox::on_outputs(std::vector<core::OutputDelta> deltas) {
  if (deltas.empty()) return;
  server_.post([this, deltas = std::move(deltas)] {
    if (receiver_) receiver_(deltas);
  });
}

}  // namespace levada::serve
