// What: a SampleRef as JSON, in the one form that refs have on the wire, in the registry's database and in ref files.
// Owner: free functions.
// Thread: any.
// Invariant: parse_ref(ref_json(r)) == r. Shapes, names and numbers from outside are bounded before anyone multiplies
// them; nothing in the object can be a tensor's bytes.
// Format: docs/formats/registry.md (SpecForge's ref, schema_version 1; what is ours stands in `metadata` alone).
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "core/sample_ref.h"

namespace levada::registry {

// What every ref of a run says about the run.
struct RefContext {
  std::string run_id;
  std::string strategy = "dflash";
  std::string target_model_version;
  std::string draft_weight_version;
  std::string tokenizer_version;
  std::string target_repr = "hidden_states";
};

std::string ref_json(const core::SampleRef& ref, const RefContext& context);

// kInvalidArgument naming the field. Checks the ref against itself, not against a run.
Result<core::SampleRef> parse_ref(std::string_view json);

}  // namespace levada::registry
