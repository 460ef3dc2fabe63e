// What: the messages of a chat request, checked and written as the JSON a chat template is given.
// Owner: the parser of one chat request.
// Thread: its owner's.
// Invariant: every field a template may read has the type OpenAI gives it; a fault is named by its path
// ("messages[2].tool_calls[0].id").
// Fields: docs/api.md.
#pragma once

#include <cstddef>
#include <string>

#include "serve/field_reader.h"

namespace levada::serve {

struct Conversation {
  std::string messages = "[";  // JSON for the template
  std::string continued;       // text of a last assistant message that the answer continues
  std::size_t text_bytes = 0;
};

// Text parts of a content become one text. With `continue_final` the last message must be the assistant's, with content
// alone; it isn't among `messages` then.
Result<Conversation> read_messages(const FieldReader& fields, bool continue_final);

}  // namespace levada::serve
