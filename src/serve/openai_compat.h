// What: OpenAiCompat, whose form of OpenAI's usage the clients of this server expect.
// Owner: values.
// Thread: any.
// Invariant: kNone is OpenAI's own.
// docs/api.md says how they differ.
#pragma once

#include <cstdint>

namespace levada::serve {

enum class OpenAiCompat : std::uint8_t { kNone, kKimi, kGlm };

}  // namespace levada::serve
