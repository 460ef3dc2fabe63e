// What: what a request says about the form of its answer: response_format, json_schema, regex, ebnf, structural_tag.
// Owner: request parsers.
// Thread: theirs.
// Invariant: at most one form per answer; what is wrong with it is a kInvalidArgument naming the field.
// Fields: docs/api.md.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "grammar/compiler.h"
#include "serve/call_spec.h"
#include "serve/field_reader.h"
#include "serve/grammar_guide.h"
#include "serve/model_context.h"

namespace levada::serve {

// A form that is asked for, and the field that did.
struct GuideWish {
  grammar::Source source;
  std::string field;
};

// Of /v1/chat/completions and /v1/completions: response_format, regex, ebnf.
Result<std::optional<GuideWish>> read_openai_guide(const FieldReader& fields);
// Of /generate's sampling_params: json_schema, regex, ebnf, structural_tag.
Result<std::optional<GuideWish>> read_native_guide(const FieldReader& fields);

// Gives each of the members a guide of its own; nothing without a wish.
Status add_guides(const ModelContext& model, const std::optional<GuideWish>& wish,
                  const std::optional<ReasoningTokens>& reasoning, std::span<Member> members);

}  // namespace levada::serve
