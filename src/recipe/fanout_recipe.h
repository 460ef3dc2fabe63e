// What: FanoutRecipe, one training run over captured hidden states: SpecForge's windowed fan-out recipe and our additions.
// Owner: a value.
// Thread: start-up only.
// Invariant: load_fanout() hands out only recipes that passed every rule of the spec (§6); a refusal names the field, what
// it is and what it must be. Paths stay as written: relative to the folder levada is started in.
// Format: docs/recipes.md.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "recipe/recipe.h"
#include "recipe/sections.h"

namespace levada::recipe {

struct FanoutRecipe {
  std::string run_id = "specforge-run";
  std::string output_dir = "./output";
  ModelSection model;
  DataSection data;
  TrainingSection training;
  RuntimeSection runtime;
  std::string mode;  // deployment.mode
  TrainerSection trainer;
  DisaggregatedSection disaggregated;
  WindowedFanoutSection fanout;
  std::vector<Consumer> consumers;
  bool managed = false;  // the recipe has a managed_local section: `up` starts the capture servers
  ManagedLocalSection managed_local;
  LevadaSection levada;
  std::optional<FlywheelSection> flywheel;  // that `up` runs; a round of one is a run without
  // What the recipe says about the server in sections engine, sched and serve, as flags of `levada serve`.
  std::vector<std::pair<std::string, std::string>> server_flags;
  // Fields that load but have no effect here, for a notice.
  std::vector<std::string> unused;

  std::string store_id() const { return disaggregated.store_id.value_or(run_id); }
  bool on_cuda() const;
  // Where a flywheel keeps everything: spool, drafts, rounds, history.
  std::string flywheel_folder() const { return output_dir + "/flywheel"; }
  // Optimizer steps of a consumer over the whole run.
  std::int64_t steps_of(const Consumer& consumer) const;
  // nullptr if there is none of this id.
  const Consumer* find_consumer(const std::string& id) const;
};

// `overrides`: "a.b=value" each, in order. `server`: the options of `levada serve`, whose sections a recipe may carry;
// it is only read.
Result<FanoutRecipe> load_fanout(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                                 const OptionTable& server);
Result<FanoutRecipe> read_fanout(Recipe recipe, const OptionTable& server);

// The rules between fields. load_fanout() has called it.
Status check(const FanoutRecipe& recipe);

}  // namespace levada::recipe
