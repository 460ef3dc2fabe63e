// What: RunTerms, everything of a recipe that decides what a run captures and trains: by it a second start knows whether it
// means the same run.
// Owner: a value.
// Thread: start-up only.
// Invariant: where and how fast a run goes (ports, folders, threads, windows, limits) is no term: the registry itself refuses a
// changed window or limit by name.
// Format: terms.txt in the control folder, one "name=value" a line.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "recipe/fanout_recipe.h"

namespace levada::cli {

using RunTerms = std::vector<std::pair<std::string, std::string>>;  // in the order they are told

// Reads the prompts file (for its hash) and the target's config. REQUIRES: check_before_start(recipe) is OK.
Result<RunTerms> run_terms_of(const recipe::FanoutRecipe& recipe);

// kFailedPrecondition naming each term that differs, its old and its new value, and the remedy, if the control folder holds a
// run of other terms, or if it holds none and the output folder has checkpoints of the same consumers. Otherwise the folder
// holds these terms afterwards.
Status agree_on_terms(const recipe::FanoutRecipe& recipe, const RunTerms& terms);

// What can be known to be wrong before any process starts: the target's shapes, the layers, the drafts, the prompts file.
// kInvalidArgument, kNotFound or what the file's reader says.
Status check_before_start(const recipe::FanoutRecipe& recipe);

}  // namespace levada::cli
