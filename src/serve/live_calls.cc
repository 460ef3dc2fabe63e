#include "serve/live_calls.h"

#include <exception>

#include "base/log.h"

namespace levada::serve {

namespace {

// False, and a line in the log, if `job` threw.
template <class Job>
bool guarded(const Job& job) {
  try {
    job();
    return true;
  } catch (const std::exception& error) {
    LEVADA_LOG_ERROR("serve: an answer could not be given: ", error.what());
  } catch (...) {
    LEVADA_LOG_ERROR("serve: an answer could not be given: something was thrown that is no exception");
  }
  return false;
}

}  // namespace

LiveCalls::LiveCalls(sched::Scheduler& scheduler, const Clock& clock, RequestMetrics& metrics,
                     std::function<std::int64_t()> unix_s)
    : scheduler_(scheduler), clock_(clock), metrics_(metrics), unix_s_(std::move(unix_s)) {}

const std::string* LiveCalls::live_rid(const CallSpec& call) const {
  for (const Member& member : call.members) {
    if (by_rid_.contains(member.rid)) return &member.rid;
    if (!member.group.empty() && by_rid_.contains(member.group)) return &member.group;
  }
  return nullptr;
}

CallId LiveCalls::start(CallSpec spec, Receiver receiver) {
  const CallId id{next_call_++};
  auto call = std::make_unique<Call>(spec, unix_s_());
  if (const std::string* rid = live_rid(spec)) {
    receiver(call->answer.on_failure(Status(StatusCode::kAlreadyExists,
                                            "the request id '" + *rid + "' belongs to a request that is still running",
                                            "rid")));
    return id;
  }
  call->receiver = std::move(receiver);
  std::vector<core::Request> requests;
  for (std::size_t member = 0; member < spec.members.size(); ++member) {
    core::Request request = std::move(spec.members[member].request);
    request.id = core::RequestId{next_request_++};
    if (member % spec.choices != 0) request.same_prompt = call->requests[member - member % spec.choices];
    call->requests.push_back(request.id);
    call->last_delta_us.push_back(request.arrival_us);
    by_request_.emplace(core::value(request.id), Target{id, member});
    for (std::string* name : {&spec.members[member].rid, &spec.members[member].group}) {
      if (!name->empty()) by_rid_[*name].push_back(request.id);
      call->rids.push_back(std::move(*name));
    }
    if (spec.counted) metrics_.on_start(spec.stream);
    requests.push_back(std::move(request));
  }
  calls_.emplace(static_cast<std::uint64_t>(id), std::move(call));
  for (core::Request& request : requests) {
    if (const Status taken = scheduler_.submit(std::move(request)); !taken.ok()) {
      fail(id, taken);
      break;
    }
  }
  return id;
}

void LiveCalls::drop(CallId id, Status why) { erase(id, why); }

void LiveCalls::fail(CallId id, const Status& why) {
  const auto found = calls_.find(static_cast<std::uint64_t>(id));
  if (found == calls_.end()) return;
  Emission emission = found->second->answer.on_failure(why);
  const Receiver receiver = std::move(found->second->receiver);
  erase(id, why);
  receiver(std::move(emission));
}

void LiveCalls::erase(CallId id, const Status& why) {
  const auto found = calls_.find(static_cast<std::uint64_t>(id));
  if (found == calls_.end()) return;
  const std::unique_ptr<Call> call = std::move(found->second);
  calls_.erase(found);
  for (const std::string& rid : call->rids) by_rid_.erase(rid);
  for (const core::RequestId request : call->requests) {
    if (by_request_.erase(core::value(request)) == 0) continue;  // finished before
    scheduler_.abort(request, why);
    if (call->counted) metrics_.on_abort();
  }
}

void LiveCalls::abort(const std::string& rid) {
  const auto found = by_rid_.find(rid);
  if (found == by_rid_.end()) return;
  for (const core::RequestId request : found->second) {
    scheduler_.abort(request, Status(StatusCode::kAborted, "aborted by request"));
  }
}

void LiveCalls::abort_all() {
  for (const auto& [request, target] : by_request_) {
    scheduler_.abort(core::RequestId{request}, Status(StatusCode::kAborted, "aborted by request"));
  }
}

void LiveCalls::on_outputs(const std::vector<core::OutputDelta>& deltas) {
  const std::int64_t now_us = clock_.now_us();
  for (const core::OutputDelta& delta : deltas) {
    if (!delta.token_ids.empty()) last_output_us_ = now_us;
    const auto found = by_request_.find(core::value(delta.request));
    if (found == by_request_.end()) continue;
    const Target target = found->second;
    if (guarded([&] { on_output(target, delta, now_us); })) continue;
    guarded([&] { fail(target.call, internal_error("the answer could not be phrased")); });
  }
}

void LiveCalls::on_output(Target target, const core::OutputDelta& delta, std::int64_t now_us) {
  const auto [id, member] = target;
  Call& call = *calls_.at(static_cast<std::uint64_t>(id));
  if (call.counted) {
    metrics_.on_delta(call.stream, delta, call.answer.fold(member).token_ids.empty(), call.last_delta_us[member],
                      now_us);
  }
  call.last_delta_us[member] = now_us;
  Emission emission = call.answer.on_delta(member, delta, now_us);
  if (delta.finish) {
    if (call.counted) metrics_.on_finish(call.stream, call.answer.fold(member));
    by_request_.erase(core::value(delta.request));
  }
  if (emission.status == 0 && emission.bytes.empty() && !emission.end) return;
  const Receiver receiver = emission.end ? std::move(call.receiver) : call.receiver;
  // The call ends before its last bytes leave, so that a client that sees them may use its rid again.
  if (emission.end) erase(id, Status(StatusCode::kAborted, "another prompt of the same call failed"));
  receiver(std::move(emission));
}

}  // namespace levada::serve
