// What: a run's snapshot as Prometheus text (format 0.0.4).
// Owner: pure function.
// Thread: any.
// Invariant: every counter, entry state and consumer of the snapshot is there; label values are escaped.
// Names: levada:fanout_<name of the snapshot>; docs/formats/registry.md.
#pragma once

#include <string>

#include "fanout/producer_messages.h"

namespace levada::registry {

std::string metrics_text(const fanout::SnapshotReply& snapshot);

}  // namespace levada::registry
