// What: the checkpoint of a draft: opened, checked tensor by tensor, and checked against its target and the room.
// Owner: the opener made here is a value without state but its target's geometry; a source owns its mapped file.
// Thread: any.
// Invariant: each tensor of draft_names.h is there once, in its shape and as floats, and no other is. Names may have
// the prefix "model.", and fc and hidden_norm SGLang's encoder names.
// Fields and names: docs/formats/checkpoint.md.
#pragma once

#include <optional>

#include "model/config.h"
#include "model/draft_source.h"
#include "model/model.h"

namespace levada::model {

// For drafts of this target. Without a room every open() is kFailedPrecondition.
std::shared_ptr<const DraftOpener> make_draft_opener(const ModelConfig& target, const std::optional<DraftRoom>& room);

}  // namespace levada::model
