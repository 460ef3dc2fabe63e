// What: every request and every reply of the registry, as one variant each.
// Owner: values.
// Thread: any.
// Invariant: an operation stands in exactly one of fanout/consumer_messages.h and fanout/producer_messages.h, and here.
// Format: docs/formats/registry.md. Positions (source_index) count from 0 in the plan's order; cursors are positions.
#pragma once

#include <variant>

#include "fanout/consumer_messages.h"
#include "fanout/producer_messages.h"

namespace levada::fanout {

using Request =
    std::variant<RegisterRequest, ResumeRequest, AcquireRequest, HeartbeatRequest, AbandonRequest, ReportLostRequest,
                 AdvanceRequest, CheckpointRequest, CompleteConsumerRequest, FailConsumerRequest, ClaimRequest,
                 MarkCommittingRequest, CompleteCaptureRequest, FailCaptureRequest, RemovalsRequest,
                 FinishEvictionRequest, ServerLostRequest, SnapshotRequest, DrainRequest, AbortRequest>;
using Reply = std::variant<RegisterReply, CursorReply, AcquireReply, HeartbeatReply, AbandonReply, EntryReply, OkReply,
                           CompleteReply, ClaimReply, FailCaptureReply, RemovalsReply, ServerLostReply, SnapshotReply>;

}  // namespace levada::fanout
