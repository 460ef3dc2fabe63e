// What: Thread, a named thread that is joined when its owner goes.
// Owner: whoever starts it; what the body captures must outlive the Thread.
// Thread: the owner's; the body runs on its own.
// Invariant: no detached threads; a body ends because its mailbox closed or its flag was raised, never by a kill.
// The name (first 15 bytes) is what `top -H` and debuggers show.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace levada {

class Thread {
 public:
  Thread() = default;
  Thread(const std::string& name, std::function<void()> body);
  Thread(Thread&&) noexcept = default;
  // Joins the thread held before.
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { join(); }

  // Waits for the body to return; again or on an empty Thread it does nothing.
  void join();
  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

}  // namespace levada
