// What: the config.json of an EAGLE-3 draft, as SpecForge writes and SGLang reads it. Used by draft_config.cc alone.
// Owner: nobody; functions of their arguments.
// Thread: any.
// Invariant: what would change the maths and isn't built is refused by its name. `norm_output` has SGLang's meaning: true
// feeds the normed state back. (SpecForge means "normed before the head", which every draft is.)
#pragma once

#include <nlohmann/json.hpp>

#include "model/draft_config.h"
#include "model/json_fields.h"

namespace levada::model {

bool is_eagle_config(const nlohmann::json& json);
Result<DraftConfig> read_eagle_config(const nlohmann::json& json, const std::string& file);
std::string eagle_config_json(const DraftConfig& config);
// An embedding of its own left out.
std::int64_t eagle_parameters(const DraftConfig& config);

// rope_parameters (newer) wins over rope_theta and rope_scaling (older). In draft_config.cc.
double read_draft_theta(JsonFields& fields, const std::string& file, Status& status);

}  // namespace levada::model
