#include <algorithm>

#include "fanout/sim/actors.h"

namespace levada::fanout::sim {

std::string url_of(std::int64_t server) { return "tcp://server" + std::to_string(server); }

void SimProducer::crash() {
  process_ += 1;
  claim_unanswered_ = false;
  captures_.clear();
  removals_.clear();
  world_.crash();
}

void SimProducer::step() {
  switch (world_.dice.below(4)) {
    case 0: return claim();
    case 1: return claim_removals();
    case 2:
      if (!removals_.empty()) return remove_one();
      break;
    default: break;
  }
  if (captures_.empty()) return claim();
  std::rotate(captures_.begin(), captures_.begin() + world_.dice.below(static_cast<std::int64_t>(captures_.size())),
              captures_.end());
  advance(captures_.front());
}

void SimProducer::claim() {
  if (!claim_unanswered_) {
    claim_id_ += 1;
    claim_server_ = world_.dice.below(World::kServers);
  }
  claim_unanswered_ = true;
  const auto answer = world_.call(ClaimRequest{"worker" + std::to_string(process_), std::to_string(claim_server_),
                                               claim_id_, world_.dice.between(1, 3), 0});
  if (!answer) return;
  claim_unanswered_ = false;
  world_.expect(answer->ok(), "a claim was refused");
  for (const CaptureOrder& order : (*answer)->requests) {
    const auto same = std::find_if(captures_.begin(), captures_.end(),
                                   [&](const Capture& c) { return c.order.nonce == order.nonce; });
    if (same == captures_.end()) captures_.push_back({order, claim_server_});
  }
}

void SimProducer::advance(Capture& capture) {
  switch (capture.phase) {
    case Capture::Phase::kSend: return send(capture);
    case Capture::Phase::kReport: return report_failure(capture);
    case Capture::Phase::kCommit: return commit(capture);
    case Capture::Phase::kComplete: return complete(capture);
  }
}

// The HTTP call to the capture server: done, failed, or nobody knows.
void SimProducer::send(Capture& capture) {
  const ObjectKey key{capture.server, capture.order.source_index, capture.order.generation};
  const std::int64_t luck = world_.faults ? world_.dice.below(12) : 11;
  capture.phase = Capture::Phase::kReport;
  const bool keeps_journal = world_.config().servers_keep_journal;
  std::int64_t& answered = world_.answered[{key.server, key.position}];
  if (keeps_journal && answered >= key.generation) {
    capture.reply_lost = luck <= 1;
    capture.ok = !capture.reply_lost && answered == key.generation && world_.exists(key);
    if (capture.ok) capture.phase = Capture::Phase::kCommit;
    return;
  }
  if (luck == 0) {
    capture.reply_lost = true;
    world_.objects[key] = true;
    answered = key.generation;
    if (keeps_journal) world_.late_writers.erase(key);  // this write was that writer's
  } else if (luck == 1) {
    capture.reply_lost = true;
    world_.late_writers[key] = world_.now_us + world_.dice.between(1, world_.config().times.capture_timeout_us - 1);
  } else if (luck == 2) {
    capture.ok = false;  // an error row: its keys were removed, or not
    if (world_.dice.one_in(2)) world_.objects[key] = true;
  } else {
    world_.objects[key] = true;
    world_.late_writers.erase(key);  // the server's journal: one writer per generation
    answered = key.generation;
    capture.ok = true;
    capture.phase = Capture::Phase::kCommit;
  }
}

void SimProducer::report_failure(Capture& capture) {
  const CaptureOrder& order = capture.order;
  FailCaptureRequest request{order.source_index, order.generation, order.nonce, "failed", true, Written::kNo};
  request.written = capture.reply_lost ? Written::kMaybe : Written::kNo;
  const auto answer = world_.call(request);
  if (answer) done(capture);
}

void SimProducer::commit(Capture& capture) {
  const CaptureOrder& order = capture.order;
  auto ref = std::make_shared<core::SampleRef>();
  ref->store_id = world_.config().store_id;
  ref->sample_id = order.source_sample_id;
  ref->generation = static_cast<std::uint32_t>(order.generation);
  ref->store_url = url_of(capture.server);
  ref->incarnation = world_.incarnation[capture.server];
  ref->num_tokens = 1;
  const auto answer =
      world_.call(MarkCommittingRequest{order.source_index, order.generation, order.nonce, ref, order.reserved_bytes});
  if (!answer) return;
  if (!answer->ok()) return done(capture);  // stale: what it wrote is garbage there already
  capture.phase = Capture::Phase::kComplete;
}

void SimProducer::complete(Capture& capture) {
  const CaptureOrder& order = capture.order;
  const auto answer = world_.call(CompleteCaptureRequest{order.source_index, order.generation, order.nonce});
  if (!answer) return;
  if (world_.faults && world_.dice.one_in(10)) return;  // sent twice
  done(capture);
}

void SimProducer::done(Capture& capture) {
  const std::string nonce = capture.order.nonce;
  std::erase_if(captures_, [&](const Capture& c) { return c.order.nonce == nonce; });
}

void SimProducer::claim_removals() {
  const auto answer = world_.call(RemovalsRequest{4, 0});
  if (!answer) return;
  for (const Removal& removal : (*answer)->removals) removals_.push_back(removal);
}

void SimProducer::remove_one() {
  const Removal removal = removals_.front();
  FinishEvictionRequest request{removal.source_index, removal.generation, {}};
  if (world_.faults && world_.dice.one_in(8)) {
    request.failed_keys = {"leased"};  // -706
  } else {
    // An entry handed out twice may be gone, or live anew, by now; the generation in its name protects the new one.
    const auto& servers = removal.servers;
    for (std::int64_t server = 0; server < World::kServers; ++server) {
      const bool named = std::find(servers.begin(), servers.end(), std::to_string(server)) != servers.end();
      if (named || servers.empty()) world_.remove({server, removal.source_index, removal.generation});
    }
  }
  const auto answer = world_.call(request);
  if (answer) removals_.pop_front();
}

}  // namespace levada::fanout::sim
