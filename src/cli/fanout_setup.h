// What: what the commands of a fan-out run share: the recipe from the command line, its plan, tokens from the environment.
// Owner: none.
// Thread: main.
// Invariant: a recipe means the same to every command; secrets are read from and written to the environment only.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "recipe/command_line.h"
#include "recipe/fanout_recipe.h"
#include "recipe/launch_plan.h"

namespace levada::cli {

struct RecipeCommand {
  recipe::CommandLine line;
  std::string file;
  recipe::FanoutRecipe recipe;
};

// `levada COMMAND RECIPE [--set a.b=value]… [flags]`, the flags being those of `table`. line.help is set without a recipe.
Result<RecipeCommand> read_recipe_command(Words words, const OptionTable& table);
Result<recipe::FanoutRecipe> load_recipe_of(const recipe::CommandLine& line, const std::string& file);
void print_usage(const char* usage, const OptionTable& table);

struct Tokens {
  std::string capture, registry, registry_admin;
};

// What the environment says; empty where it says nothing.
Tokens tokens_from_environment(const recipe::FanoutRecipe& recipe);
// kInvalidArgument naming the variable if the registry's token is missing: a role started by hand needs it.
Result<Tokens> tokens_of_a_role(const recipe::FanoutRecipe& recipe);
// The same as tokens_from_environment(), each that is missing drawn at random.
Tokens make_tokens(const recipe::FanoutRecipe& recipe);

// The context of this process: its binary, its folder.
recipe::PlanContext plan_context(const RecipeCommand& command, const Tokens& tokens);

}  // namespace levada::cli
