// What: the fields other servers know that would change an answer and are not served yet.
// Owner: request parsers.
// Thread: any.
// Invariant: none of them is ignored: with any value but a neutral one the request is refused by the field's name. Who
// builds a feature deletes its line in the table of unserved_fields.cc.
// docs/api.md lists them for users.
#pragma once

#include "serve/field_reader.h"

namespace levada::serve {

// The objects that a table's line can be about.
enum class Body : unsigned {
  kChat = 1,
  kCompletion = 2,
  kGenerate = 4,
  kSamplingParams = 8,  // of /generate
  kStreamOptions = 16,
};

// Fails with "not supported yet" for the first field of the table that asks for something.
void refuse_unserved(FieldReader& fields, Body body);

}  // namespace levada::serve
