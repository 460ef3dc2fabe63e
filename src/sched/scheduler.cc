#include "sched/scheduler.h"

#include <mutex>
#include <utility>
#include <variant>

#include "base/overloaded.h"
#include "sched/brain.h"

namespace levada::sched {
namespace {

struct Submit {
  core::Request request;
};
struct Abort {
  core::RequestId id;
  Status why;
};
struct Flush {
  std::function<void(Status)> done;
};
struct UseDraft {
  core::DraftProfile profile;
  std::function<void()> done;
};
struct Inspect {
  std::function<void(const Snapshot&)> job;
};
struct Audit {
  std::function<void(const Snapshot&, Status)> job;
};
struct Stop {};
constexpr const char* kShuttingDown = "the server is shutting down";
using Message = std::variant<core::StepResult, Submit, Abort, Flush, UseDraft, Inspect, Audit, Stop>;

}  // namespace

struct Scheduler::Impl {
  Impl(const Options& options, const Limits& limits, const core::KvLayout& layout, core::StepExecutor& the_executor,
       core::OutputSink& the_sink, const text::Tokenizer* tokenizer, const Clock& clock, Metrics& metrics)
      : executor(the_executor), sink(the_sink), brain(options, limits, layout, tokenizer, clock, metrics) {
    executor.set_result_sink([box = mailbox](core::StepResult result) { box->push(std::move(result)); });
  }

  bool drain();
  void apply(const core::StepResult& result);
  void handle(Message& message);
  bool plan_and_submit();
  void tell();

  core::StepExecutor& executor;
  core::OutputSink& sink;
  // Shared with the executor's sink: a result may arrive when the scheduler is gone.
  std::shared_ptr<Mailbox<Message>> mailbox = std::make_shared<Mailbox<Message>>();
  Brain brain;
  std::vector<Message> inbox;
  bool stopping = false;
  mutable std::mutex health_mutex;
  Status health;  // the brain's, for other threads
};

Scheduler::Scheduler(const Options& options, const Limits& limits, const core::KvLayout& layout,
                     core::StepExecutor& executor, core::OutputSink& sink, const text::Tokenizer* tokenizer,
                     const Clock& clock, Metrics& metrics)
    : impl_(std::make_unique<Impl>(options, limits, layout, executor, sink, tokenizer, clock, metrics)) {}

Scheduler::~Scheduler() { impl_->mailbox->close(); }

bool Scheduler::step() {
  const bool heard = impl_->drain();
  const bool planned = impl_->plan_and_submit();
  impl_->tell();
  return heard || planned;
}

void Scheduler::run() {
  while (!(impl_->stopping && impl_->brain.idle())) {
    if (!step()) impl_->mailbox->take(impl_->inbox);
  }
  impl_->mailbox->close();  // what comes now is refused; what came before is still answered
  while (step()) {
  }
}

bool Scheduler::Impl::drain() {
  mailbox->try_take(inbox);
  for (Message& message : inbox) handle(message);
  const bool heard = !inbox.empty();
  inbox.clear();
  return heard;
}

void Scheduler::Impl::handle(Message& message) {
  std::visit(Overloaded{
                 [&](core::StepResult& result) { apply(result); },
                 [&](Submit& m) {
                   const core::RequestId id = m.request.id;
                   brain.submit(std::move(m.request));
                   if (stopping) brain.abort(id, unavailable(kShuttingDown));
                 },
                 [&](Abort& m) { brain.abort(m.id, m.why); },
                 [&](Flush& m) { brain.flush_cache(std::move(m.done)); },
                 [&](UseDraft& m) { brain.use_draft(std::move(m.profile), std::move(m.done)); },
                 [&](Inspect& m) { m.job(brain.snapshot()); },
                 [&](Audit& m) { m.job(brain.snapshot(), brain.audit()); },
                 [&](Stop&) {
                   stopping = true;
                   brain.abort_all(unavailable(kShuttingDown));
                 },
             },
             message);
}

void Scheduler::Impl::apply(const core::StepResult& result) {
  brain.apply(result);
  if (!result.executor_lost) return;
  std::lock_guard lock(health_mutex);
  health = brain.health();
}

bool Scheduler::Impl::plan_and_submit() {
  auto plan = brain.next_plan();
  if (!plan) return false;
  executor.submit(std::move(plan));
  return true;
}

void Scheduler::Impl::tell() {
  brain.publish_metrics();
  // After the submission: clients read while the device computes.
  if (auto deltas = brain.take_deltas(); !deltas.empty()) sink.on_outputs(std::move(deltas));
}

Status Scheduler::check_fits(std::int32_t prompt_tokens) const { return impl_->brain.check_fits(prompt_tokens); }
Status Scheduler::health() const {
  std::lock_guard lock(impl_->health_mutex);
  return impl_->health;
}
Status Scheduler::submit(core::Request request) {
  if (impl_->mailbox->push(Submit{std::move(request)})) return {};
  return unavailable(kShuttingDown);
}
void Scheduler::abort(core::RequestId id, Status why) { impl_->mailbox->push(Abort{id, std::move(why)}); }
void Scheduler::flush_cache(std::function<void(Status)> done) { impl_->mailbox->push(Flush{std::move(done)}); }
void Scheduler::use_draft(core::DraftProfile profile, std::function<void()> done) {
  impl_->mailbox->push(UseDraft{std::move(profile), std::move(done)});
}
void Scheduler::inspect(std::function<void(const Snapshot&)> job) { impl_->mailbox->push(Inspect{std::move(job)}); }
void Scheduler::audit(std::function<void(const Snapshot&, Status)> job) { impl_->mailbox->push(Audit{std::move(job)}); }
void Scheduler::stop() { impl_->mailbox->push(Stop{}); }

}  // namespace levada::sched
