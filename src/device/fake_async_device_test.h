// What: a stream and an event that are late on purpose, for tests of ordering (law 14).
// Owner: the test.
// Thread: operations run on the stream's own thread, in order.
// Invariant: nothing of a stream runs while it is held; a wait on an event blocks the stream, not its caller.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "device/device.h"

namespace levada::device {

class FakeEvent final : public Event {
 public:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool recorded = false, done = false;
  };
  bool recorded() const override {
    std::lock_guard lock(state_->mutex);
    return state_->recorded;
  }
  bool ready() const override {
    std::lock_guard lock(state_->mutex);
    LEVADA_CHECK(state_->recorded, "recorded first");
    return state_->done;
  }
  Status wait() override {
    std::unique_lock lock(state_->mutex);
    LEVADA_CHECK(state_->recorded, "recorded first");
    state_->changed.wait(lock, [&] { return state_->done; });
    return {};
  }
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class FakeStream final : public Stream {
 public:
  FakeStream() : thread_([this] { run(); }) {}
  ~FakeStream() override {
    release();
    enqueue(nullptr);
    thread_.join();
  }
  // While held, the stream accepts work and does none of it.
  void hold() {
    std::lock_guard lock(mutex_);
    held_ = true;
  }
  void release() {
    {
      std::lock_guard lock(mutex_);
      held_ = false;
    }
    changed_.notify_all();
  }

  Status copy(void* to, const void* from, std::size_t bytes) override {
    enqueue([=] {
      if (bytes > 0) std::memcpy(to, from, bytes);  // nothing may lie at a null pointer
    });
    return {};
  }
  Status fill(void* to, std::uint8_t byte, std::size_t bytes) override {
    enqueue([=] { std::memset(to, byte, bytes); });
    return {};
  }
  Status record(Event& event) override {
    auto state = static_cast<FakeEvent&>(event).state_;
    {
      std::lock_guard lock(state->mutex);
      state->recorded = true;
    }
    enqueue([state] {
      std::lock_guard lock(state->mutex);
      state->done = true;
      state->changed.notify_all();
    });
    return {};
  }
  Status wait(const Event& event) override {
    LEVADA_CHECK(event.recorded(), "recorded first");
    auto state = static_cast<const FakeEvent&>(event).state_;
    enqueue([state] {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->done; });
    });
    return {};
  }
  Status synchronize() override {
    FakeEvent event;
    LEVADA_RETURN_IF_ERROR(record(event));
    return event.wait();
  }
  void* native_handle() const override { return nullptr; }

 private:
  void enqueue(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void run() {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !held_ && !queue_.empty(); });
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      if (!work) return;
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool held_ = false;
  std::thread thread_;
};

}  // namespace levada::device
