// What: what a granted sample must be before it is read (V1, V3), and whether its first values make sense (V2).
// Owner: pure functions.
// Thread: any.
// Invariant: a ref that passes has exactly the objects, shapes and lengths of the run's contract and the tokens of the
// plan; the reader may allocate for it and the trainer may compute with it.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "consumer/run_card.h"
#include "fanout/consumer_messages.h"

namespace levada::consumer {

// kDataLoss naming what differs from the position, the contract or the plan.
Status check_lease(const fanout::GrantedLease& lease, const RunCard& card);

// kDataLoss naming the first row that is not finite. `bits`: bfloat16.
Status check_finite(std::span<const std::uint16_t> bits, std::int64_t width);

}  // namespace levada::consumer
