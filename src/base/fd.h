// What: Fd, a file descriptor that is closed when its owner dies.
// Owner: exactly one Fd owns a descriptor; moving hands it on.
// Thread: one at a time.
// Invariant: get() is -1 or a descriptor that nobody else closes.
// Close errors are ignored: whoever must know that bytes are durable calls fsync first.
#pragma once

#include <unistd.h>

#include <utility>

namespace levada {

class Fd {
 public:
  Fd() = default;
  // Takes ownership of `descriptor`; -1 owns nothing.
  explicit Fd(int descriptor) : descriptor_(descriptor) {}
  Fd(Fd&& other) noexcept : descriptor_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  // Gives ownership up; the caller closes.
  [[nodiscard]] int release() { return std::exchange(descriptor_, -1); }
  // Closes what is owned and takes `descriptor` instead.
  void reset(int descriptor = -1) {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = descriptor;
  }

 private:
  int descriptor_ = -1;
};

}  // namespace levada
