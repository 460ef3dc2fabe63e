#include "render_budget.h"

#include <cstring>

namespace levada::text {
namespace {

thread_local RenderBudget* current = nullptr;

}  // namespace

RenderBudget::RenderBudget(const Limits& limits)
    : limits_(limits),
      steps_left_(limits.steps),
      values_left_(limits.live_values),
      bytes_left_(limits.bytes),
      top_(static_cast<const char*>(__builtin_frame_address(0))),
      outer_(current) {
  current = this;
}

RenderBudget::~RenderBudget() {
  break_cycles();
  current = outer_;
}

// What is still listed is held by itself, or by somebody who keeps it for longer (and has no use for what it holds).
void RenderBudget::break_cycles() noexcept {
  std::vector<std::shared_ptr<void>> references;  // none dies before all are here
  while (values_.next != &values_) {
    auto* const value = static_cast<Listed*>(values_.next);
    value->give_up(references);
    Link* const link = value;
    values_.next = link->next;
    link->previous = link->next = link;
  }
  values_.previous = &values_;
}

Listed::Listed() {
  if (current == nullptr) return;
  RenderBudget::charge_steps(1);
  if (current->values_left_ <= 0) throw RenderLimit{"live values"};
  --current->values_left_;
  previous = current->values_.previous;
  next = &current->values_;
  previous->next = next->previous = this;
}

Listed::~Listed() {
  previous->next = next;
  next->previous = previous;
  if (current != nullptr) ++current->values_left_;
}

void RenderBudget::charge_steps(std::int64_t count) {
  if (current != nullptr && (current->steps_left_ -= count) < 0) throw RenderLimit{"steps"};
}

void RenderBudget::charge_bytes(std::size_t count) {
  if (current == nullptr) return;
  if (count > static_cast<std::size_t>(INT64_MAX) || current->bytes_left_ < static_cast<std::int64_t>(count)) {
    current->bytes_left_ = -1;
    throw RenderLimit{"bytes of text"};
  }
  current->bytes_left_ -= static_cast<std::int64_t>(count);
}

void RenderBudget::check_stack(std::ptrdiff_t share) {
  if (current == nullptr) return;
  const char* here = static_cast<const char*>(__builtin_frame_address(0));
  if (current->top_ - here > current->limits_.stack_bytes / share) throw RenderLimit{"nesting depth"};
}

void RenderBudget::enter() {
  charge_steps(1);
  check_stack(1);
}

void RenderBudget::enter_shallow() {
  charge_steps(1);
  check_stack(8);
}

std::size_t find_linear(const std::string& text, const std::string& needle, std::size_t from) {
  if (from > text.size()) return std::string::npos;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string::npos : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::string replace_all(const std::string& text, const std::string& from, const std::string& to) {
  std::string out;
  std::size_t copied = 0;
  for (std::size_t at; (at = find_linear(text, from, copied)) != std::string::npos; copied = at + from.size()) {
    RenderBudget::charge_bytes(at - copied + to.size());
    out.append(text, copied, at - copied).append(to);
  }
  return out.append(text, copied);
}

}  // namespace levada::text
