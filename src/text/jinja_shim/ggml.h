// What: the one macro the bundled Jinja engine wants from ggml.h.
// Owner: none.
// Thread: any.
// Invariant: a failed assertion is an exception, caught in chat_template.cc, and never ends the process. The engine's
// JSON wrapper is its only user. See cmake/Jinja.cmake.
#pragma once

#include <stdexcept>

#define GGML_ASSERT(condition) \
  (static_cast<bool>(condition) ? void(0) : throw std::logic_error("assertion failed: " #condition))
