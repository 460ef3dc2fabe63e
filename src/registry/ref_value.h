// What: parse_ref for a ref that is part of a larger JSON document.
// Owner: free function.
// Thread: the parser's.
// Invariant: as parse_ref in registry/ref_json.h. Private to this room's .cc files.
// Format: docs/formats/registry.md.
#pragma once

#include "core/sample_ref.h"
#include "registry/json_value.h"

namespace levada::registry {

Result<core::SampleRef> parse_ref_value(Json root);

}  // namespace levada::registry
