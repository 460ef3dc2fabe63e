#include "producer/capture_worker.h"

#include "base/log.h"
#include "producer/registry_calls.h"

namespace levada::producer {

using Step = CaptureWorker::Step;
using fanout::Written;

namespace {

// The request is wrong, and will be the next time; not: too slow, too many.
bool is_refusal(int status) { return status >= 400 && status < 500 && status != 408 && status != 429; }

}  // namespace

Result<Step> CaptureWorker::step() {
  if (!watch_.is_up()) return Step::kFailed;
  std::vector<CaptureTask> tasks;
  LEVADA_ASSIGN_OR_RETURN(const Step claimed, claim(tasks));
  if (claimed != Step::kWorked) return claimed;
  return send(tasks);
}

Result<Step> CaptureWorker::claim(std::vector<CaptureTask>& tasks) {
  const auto reply = around_.registry.call(
      fanout::ClaimRequest{options_.name, watch_.url(), claim_id_, options_.batch, options_.claim_wait_ms});
  if (!reply.ok()) {
    if (fanout::is_retryable(reply.error().code)) return Step::kFailed;
    return call_failed("claim_batch", reply.error(), around_.pause);
  }
  claim_id_ += 1;
  if (reply->requests.empty()) return reply->drain ? Step::kDone : Step::kIdle;
  for (const fanout::CaptureOrder& order : reply->requests) {
    LEVADA_CHECK(order.source_index >= 0 && order.source_index < std::ssize(around_.samples), "claims are of the plan");
    tasks.push_back({order, around_.samples[static_cast<std::size_t>(order.source_index)]});
  }
  return Step::kWorked;
}

Result<Step> CaptureWorker::send(const std::vector<CaptureTask>& tasks) {
  capture_calls_ += 1;
  const auto response =
      server_->post("/generate", capture_body(tasks, around_.contract, around_.fresh_key), options_.capture_timeout_us);
  if (!response.ok()) return on_lost_reply(tasks, response.status().message());
  if (response->status == 401 || response->status == 403) {
    const std::string refusal = watch_.url() + " refuses the capture token";
    for (const CaptureTask& task : tasks) (void)fail(task, {refusal, false});
    return Status(StatusCode::kUnauthenticated, refusal);
  }
  if (response->status != 200) {
    const std::string error =
        "/generate answers " + std::to_string(response->status) + ": " + response->body.substr(0, 300);
    return is_refusal(response->status) ? on_refused_call(tasks, error) : on_lost_reply(tasks, error);
  }
  const auto verdicts = read_capture_reply(response->body, tasks, around_.contract, options_.store);
  if (!verdicts.ok()) return on_lost_reply(tasks, verdicts.status().message());
  LEVADA_RETURN_IF_ERROR(bring_home(tasks, *verdicts));
  return Step::kWorked;
}

// The body is refused as a whole, nothing was written: each task is asked alone, so that the one at fault is found and the
// others are captured.
Result<Step> CaptureWorker::on_refused_call(const std::vector<CaptureTask>& tasks, const std::string& error) {
  if (tasks.size() == 1) {
    LEVADA_RETURN_IF_ERROR(fail(tasks[0], {error, false}));
    return Step::kWorked;
  }
  Result<Step> outcome = Step::kWorked;
  for (const CaptureTask& task : tasks) {
    auto sent = send({task});
    if (outcome.ok() && (!sent.ok() || *sent == Step::kFailed)) outcome = std::move(sent);
  }
  return outcome;
}

// Every task is told, whatever became of those before it: one left untold would hold up the end of the run.
Status CaptureWorker::bring_home(const std::vector<CaptureTask>& tasks, const std::vector<CaptureVerdict>& verdicts) {
  Status first;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const CaptureVerdict& verdict = verdicts[i];
    using Kind = CaptureVerdict::Kind;
    const Failure failure{verdict.error, verdict.kind == Kind::kRetryable, Written::kNo,
                          verdict.kind == Kind::kTerminal};
    const Status told = verdict.kind == Kind::kCaptured ? adopt(tasks[i], verdict.ref) : fail(tasks[i], failure);
    if (first.ok()) first = told;
  }
  return first;
}

// Nobody knows what was written: the same generations are sent again, here or to another server.
Result<Step> CaptureWorker::on_lost_reply(const std::vector<CaptureTask>& tasks, const std::string& error) {
  LEVADA_LOG_WARNING(watch_.url(), ": a capture of ", tasks.size(), " prompts was lost: ", error);
  lost_calls_ += 1;
  watch_.on_failed_call(error);
  Status first;
  for (const CaptureTask& task : tasks) {
    const Status told = fail(task, {error, true, Written::kMaybe});
    if (first.ok()) first = told;
  }
  LEVADA_RETURN_IF_ERROR(first);
  return Step::kFailed;
}

Status CaptureWorker::adopt(const CaptureTask& task, const core::SampleRef& ref) {
  LEVADA_RETURN_IF_ERROR(watch_.on_captured(ref, around_.registry));
  const std::int64_t p = task.order.source_index;
  const std::int64_t generation = task.order.generation;
  const auto bytes = static_cast<std::int64_t>(ref.bytes());
  const fanout::MarkCommittingRequest mark{p, generation, task.order.nonce,
                                           std::make_shared<const core::SampleRef>(ref), bytes};
  const auto marked = call_until_heard(around_.registry, mark, around_.pause);
  if (marked.ok() && marked->state == fanout::EntryState::kFailed) {
    return Status(StatusCode::kFailedPrecondition, ref.sample_id + " cannot be captured: it holds " +
                                                       std::to_string(bytes) + " bytes, reserved were " +
                                                       std::to_string(task.order.reserved_bytes));
  }
  if (!marked.ok() && marked.error().code != fanout::ErrorCode::kStaleGeneration) {
    return call_failed("mark_committing", marked.error(), around_.pause);
  }
  // For a stale generation too: only this call puts on record that its objects must go.
  const auto completed = call_until_heard(
      around_.registry, fanout::CompleteCaptureRequest{p, generation, task.order.nonce}, around_.pause);
  if (completed.ok() || completed.error().code == fanout::ErrorCode::kStaleGeneration) return {};
  return call_failed("complete_capture", completed.error(), around_.pause);
}

Status CaptureWorker::fail(const CaptureTask& task, const Failure& failure) {
  fanout::FailCaptureRequest request;
  request.source_index = task.order.source_index;
  request.generation = task.order.generation;
  request.nonce = task.order.nonce;
  request.error = failure.error;
  request.retryable = failure.is_retryable;
  request.written = failure.written;
  const auto reply = call_until_heard(around_.registry, request, around_.pause);
  if (!reply.ok()) return call_failed("fail_capture", reply.error(), around_.pause);
  LEVADA_LOG_WARNING(task.order.source_sample_id, " was not captured: ", failure.error,
                     reply->retried ? "; it is tried again" : "");
  const bool is_skipped = options_.skips_failed && !failure.breaks_contract;
  if (reply->state != fanout::EntryState::kFailed || is_skipped) return {};
  return Status(StatusCode::kFailedPrecondition, task.order.source_sample_id + " cannot be captured: " + failure.error);
}

}  // namespace levada::producer
