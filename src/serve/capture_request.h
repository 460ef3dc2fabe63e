// What: the part of a /generate body that asks for captures, in SpecForge's two spellings ("patch": a top-level
// spec_capture list; "plugin": sampling_params[i].custom_params.spec_capture as JSON text or an object), read into
// specs.
// Owner: an intake thread reads it, CaptureCalls carries it out.
// Thread: one at a time.
// Invariant: one item per prompt. What is wrong with one item is that item's error and nobody else's; only a wrong token
// and an item list of the wrong length fail the call.
#pragma once

#include <simdjson.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/sample_spec.h"
#include "core/ids.h"
#include "serve/model_context.h"

namespace levada::serve {

// What a server that captures lets its clients ask for.
struct CaptureTerms {
  capture::SampleLimits limits;
  std::vector<std::int32_t> default_layers;  // of the artifact "aux"
  DType dtype = DType::kBF16;                // of hidden states
  std::string token;                         // clients must show it; empty: open
};

struct CaptureItem {
  capture::SampleSpec spec;
  Status error;  // not ok: the item can't be captured
};

struct CaptureBody {
  std::vector<CaptureItem> items;
  bool results_in_lists = false;  // the plugin's spelling wants each result in a list of its own
};

// The native wish of /v1/chat/completions and /v1/completions: `capture` {sample_id, gen, replace, features, layers,
// dtype}, all but sample_id optional. Once the answer is there, prompt and answer are captured together, with their
// input_ids and loss_mask (1: a token of the answer). Nullopt: not asked for. Errors as of read_captures(), and whatever
// is wrong with the wish.
Result<std::optional<CaptureItem>> read_live_capture(const CaptureTerms* terms, std::string_view bearer,
                                                     simdjson::dom::object body);
// Adds what is known only now.
void complete_live_capture(CaptureItem& item, std::span<const core::Token> tokens, std::size_t prompt_tokens);

// Whether read_captures() would find something.
bool asks_for_captures(simdjson::dom::object body);

// Nullopt: the body asks for no capture. `bearer`: the request's Authorization. kUnauthenticated unless that or each
// item's auth_token is the token; kFailedPrecondition if `terms` is null: this server doesn't capture.
Result<std::optional<CaptureBody>> read_captures(const CaptureTerms* terms, std::string_view bearer,
                                                 simdjson::dom::object body, std::size_t prompts);

}  // namespace levada::serve
