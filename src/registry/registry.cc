#include "registry/registry.h"

#include <algorithm>
#include <future>
#include <limits>

#include "base/log.h"
#include "registry/message_json.h"

namespace levada::registry {

namespace {

using fanout::Error;
using fanout::ErrorCode;
using fanout::Outcome;
using fanout::Reply;
using fanout::Request;

constexpr std::int64_t kMaxWaitMs = 20'000;
constexpr std::int64_t kReloadEveryUs = 1'000'000;
constexpr std::int64_t kLongestNapUs = 3'600'000'000;

Error stopped() { return {ErrorCode::kUnavailable, "the registry has stopped"}; }

}  // namespace

Result<std::unique_ptr<Registry>> Registry::open(std::shared_ptr<const fanout::RunConfig> config,
                                                 std::unique_ptr<Storage> storage, const Clock& clock) {
  std::unique_ptr<Registry> registry(new Registry(std::move(config), std::move(storage), clock));
  LEVADA_RETURN_IF_ERROR(registry->reload(clock.now_us()));
  registry->thread_ = Thread("registry", [raw = registry.get()] { raw->run(); });
  return registry;
}

Status Registry::reload(std::int64_t now_us) {
  machine_.reset();
  LEVADA_ASSIGN_OR_RETURN(const fanout::Rows rows, storage_->load());
  LEVADA_ASSIGN_OR_RETURN(fanout::Machine machine, fanout::Machine::open(config_, rows, now_us));
  LEVADA_RETURN_IF_ERROR(storage_->commit(machine.take_changes()));
  machine_ = std::move(machine);
  return {};
}

Registry::Ticket Registry::submit(Request request, Answer answer) {
  const Ticket ticket = next_ticket_.fetch_add(1);
  // A closed mailbox drops the message with its answer; the copy left here tells the caller.
  Answer refused = answer;
  if (!mailbox_.push({Message::Kind::kRequest, ticket, std::move(request), std::move(answer)})) refused(stopped());
  return ticket;
}

void Registry::cancel(Ticket ticket) { mailbox_.push({Message::Kind::kCancel, ticket, {}, {}}); }

void Registry::nudge() { mailbox_.push({Message::Kind::kNudge, 0, {}, {}}); }

void Registry::stop() {
  mailbox_.close();
  thread_.join();
}

void Registry::run() {
  std::vector<Message> messages;
  while (true) {
    const std::int64_t now_us = clock_.now_us();
    const std::int64_t nap_us = std::clamp<std::int64_t>(next_wake_us(now_us) - now_us, 0, kLongestNapUs);
    const bool open = mailbox_.take(messages, std::chrono::microseconds(nap_us));
    turn(messages);
    messages.clear();
    if (!open) break;
  }
  for (Waiting& waiting : waiting_) waiting.answer(stopped());
  waiting_.clear();
}

std::int64_t Registry::next_wake_us(std::int64_t now_us) const {
  if (!machine_) return reload_after_us_;
  std::int64_t next = machine_->next_deadline_us(now_us);
  for (const Waiting& waiting : waiting_) next = std::min(next, waiting.until_us);
  return next;
}

void Registry::turn(std::vector<Message>& messages) {
  const std::int64_t now_us = clock_.now_us();
  if (!machine_ && now_us >= reload_after_us_) {
    const Status status = reload(now_us);
    if (!status.ok()) {
      LEVADA_LOG_ERROR("registry: still cannot use its database: ", status);
      reload_after_us_ = now_us + kReloadEveryUs;
    }
  }
  if (machine_) machine_->on_time(now_us);
  for (Message& message : messages) handle(std::move(message), now_us);
  if (!machine_) return;
  // One waiter's answer may be another's chance.
  for (std::size_t before = waiting_.size() + 1; waiting_.size() < before;) {
    before = waiting_.size();
    ask_waiting_again(now_us);
  }
  commit_and_answer(now_us);
}

void Registry::handle(Message message, std::int64_t now_us) {
  if (message.kind == Message::Kind::kNudge) return;
  if (message.kind == Message::Kind::kCancel) {
    const auto gone = std::find_if(waiting_.begin(), waiting_.end(),
                                   [&](const Waiting& waiting) { return waiting.ticket == message.ticket; });
    if (gone == waiting_.end()) return;
    if (machine_) machine_->end_wait(gone->request);
    gone->answer(Error{ErrorCode::kUnavailable, "the caller went away"});
    waiting_.erase(gone);
    return;
  }
  if (!machine_) {
    message.answer(Error{ErrorCode::kUnavailable, "the registry cannot use its database at present"});
    return;
  }
  Outcome<Reply> outcome = machine_->apply(message.request, now_us);
  if (outcome.ok() && fanout::Machine::waits(message.request, *outcome)) {
    const std::int64_t wait_us = std::min(wait_ms_of(message.request), kMaxWaitMs) * 1000;
    waiting_.push_back({message.ticket, std::move(message.request), std::move(message.answer), now_us + wait_us});
    return;
  }
  answered_.push_back({std::move(message.answer), std::move(outcome)});
}

void Registry::ask_waiting_again(std::int64_t now_us) {
  std::vector<Waiting> still;
  for (Waiting& waiting : waiting_) {
    Outcome<Reply> outcome = machine_->apply(waiting.request, now_us);
    const bool has_nothing = outcome.ok() && fanout::Machine::waits(waiting.request, *outcome);
    if (has_nothing && now_us < waiting.until_us) {
      still.push_back(std::move(waiting));
      continue;
    }
    if (has_nothing) machine_->end_wait(waiting.request);
    answered_.push_back({std::move(waiting.answer), std::move(outcome)});
  }
  waiting_ = std::move(still);
}

void Registry::commit_and_answer(std::int64_t now_us) {
  const fanout::Changes changes = machine_->take_changes();
  if (!changes.empty()) {
    const Status status = storage_->commit(changes);
    if (!status.ok()) {
      fall_back(status, now_us);
      return;
    }
  }
  for (Answered& answered : answered_) answered.answer(std::move(answered.outcome));
  answered_.clear();
}

void Registry::fall_back(const Status& cause, std::int64_t now_us) {
  LEVADA_LOG_ERROR("registry: a commit failed, reading the database again: ", cause);
  const Error error{ErrorCode::kUnavailable, "the registry could not write: " + cause.to_string()};
  for (Answered& answered : answered_) answered.answer(error);
  for (Waiting& waiting : waiting_) waiting.answer(error);
  answered_.clear();
  waiting_.clear();
  const Status status = reload(now_us);
  if (!status.ok()) reload_after_us_ = now_us + kReloadEveryUs;
}

Outcome<Reply> LocalApi::call_any(Request request) {
  // Shared by this frame and the answer, which is a copyable function.
  auto promise = std::make_shared<std::promise<Outcome<Reply>>>();
  std::future<Outcome<Reply>> answer = promise->get_future();
  registry_.submit(std::move(request), [promise](Outcome<Reply> outcome) { promise->set_value(std::move(outcome)); });
  return answer.get();
}

}  // namespace levada::registry
