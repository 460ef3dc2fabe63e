// What: from a fan-out recipe to what each role is started with: the run, the trainers' options, the drafts' geometry.
// Owner: none.
// Thread: start-up only.
// Invariant: one place where a recipe's field gets its meaning; every refusal names the recipe's field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "consumer/options.h"
#include "fanout/run_config.h"
#include "model/draft_config.h"
#include "producer/options.h"
#include "recipe/fanout_recipe.h"
#include "train/options.h"

namespace levada::cli {

// Identity, consumers, limits and times. What the prompts decide (sources, digests, sizes) is left to the producer.
fanout::RunConfig run_config_of(const recipe::FanoutRecipe& recipe);
fanout::ConsumerSpec window_of(const recipe::FanoutRecipe& recipe, const recipe::Consumer& consumer);

// kInvalidArgument if the drafts do not fit together.
Result<producer::Options> producer_options_of(const recipe::FanoutRecipe& recipe);
consumer::Options consumer_options_of(const recipe::FanoutRecipe& recipe, const recipe::Consumer& consumer);
train::Options trainer_options_of(const recipe::FanoutRecipe& recipe, const recipe::Consumer& consumer);

// The draft's geometry: the recipe's draft_model_config, or the target's own shapes with the recipe's number of layers;
// single fields of the recipe go on top. Reads the target's config (not its weights).
Result<model::DraftConfig> draft_config_of(const recipe::FanoutRecipe& recipe, const recipe::Consumer& consumer);

// Name and value of whatever changes what `options` and `draft` train; not where it is kept or on how many threads.
std::vector<std::pair<std::string, std::string>> training_terms(const train::Options& options,
                                                                const model::DraftConfig& draft);
// Changes with any of them.
std::string training_hash(const train::Options& options, const model::DraftConfig& draft);

// Target layers that the run captures. kInvalidArgument if two drafts want different ones.
Result<std::vector<std::int64_t>> captured_layers(const recipe::FanoutRecipe& recipe);

}  // namespace levada::cli
