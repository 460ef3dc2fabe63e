// What: LiveCalls, every call between submit and its last byte: ids, rids, disconnects, aborts.
// Owner: Api.
// Thread: the I/O thread only.
// Invariant: every started call is answered or dropped, whatever one delta or receiver does (an exception ends its call
// alone, with 500); a RequestId is given once per process; a rid names the members of at most one live call (B36), an empty
// one names nobody; a call that is dropped has every unfinished member aborted (B42), and what the scheduler still says
// about them is ignored.
// It calls the scheduler only through the functions that post.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "sched/scheduler.h"
#include "serve/answer.h"
#include "serve/request_metrics.h"

namespace levada::serve {

enum class CallId : std::uint64_t {};

class LiveCalls {
 public:
  using Receiver = std::function<void(Emission)>;

  // `unix_s` answers the present date, for the `created` field.
  LiveCalls(sched::Scheduler& scheduler, const Clock& clock, RequestMetrics& metrics,
            std::function<std::int64_t()> unix_s);

  // Submits the call's members; `receiver` gets everything the answer says, the last with end set. A rid that is live
  // is answered with kAlreadyExists at once, and the call that holds it goes on; a scheduler that has stopped, with
  // kUnavailable.
  CallId start(CallSpec call, Receiver receiver);
  // The client is gone or has what it needs: aborts what is unfinished; the receiver hears no more. Idempotent.
  void drop(CallId call, Status why);
  // Aborts the requests of this name; their answers say so. Unknown names are ignored.
  void abort(const std::string& rid);
  void abort_all();
  // One step's deltas. Unknown ids belong to dropped calls.
  void on_outputs(const std::vector<core::OutputDelta>& deltas);

  std::size_t size() const { return calls_.size(); }
  // Not yet answered and not dropped.
  bool is_live(CallId call) const { return calls_.contains(static_cast<std::uint64_t>(call)); }
  // When a token last came for any request; a sign of life for health probes, which a refusal is not.
  std::int64_t last_output_us() const { return last_output_us_; }

 private:
  struct Call {
    Call(const CallSpec& spec, std::int64_t created_unix_s)
        : answer(spec, created_unix_s), stream(spec.stream), counted(spec.counted) {}
    Answer answer;
    bool stream, counted;
    Receiver receiver;
    std::vector<core::RequestId> requests;
    std::vector<std::int64_t> last_delta_us;
    std::vector<std::string> rids;  // and the groups' names
  };
  struct Target {
    CallId call;
    std::size_t member;
  };

  const std::string* live_rid(const CallSpec& call) const;
  void on_output(Target target, const core::OutputDelta& delta, std::int64_t now_us);
  // Answers the call with an error; its members are aborted.
  void fail(CallId call, const Status& why);
  void erase(CallId call, const Status& why);

  sched::Scheduler& scheduler_;
  const Clock& clock_;
  RequestMetrics& metrics_;
  std::function<std::int64_t()> unix_s_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Call>> calls_;  // by CallId
  std::unordered_map<std::uint64_t, Target> by_request_;            // unfinished members
  std::unordered_map<std::string, std::vector<core::RequestId>> by_rid_;
  std::uint64_t next_request_ = 1, next_call_ = 1;
  std::int64_t last_output_us_ = 0;
};

}  // namespace levada::serve
