#include "cli/fanout_setup.h"

#include <cstdlib>
#include <filesystem>

#include "base/random.h"
#include "cli/server_options.h"

namespace levada::cli {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Result<recipe::FanoutRecipe> load_recipe_of(const recipe::CommandLine& line, const std::string& file) {
  ServerOptions server;  // only what the recipe says about it is wanted
  OptionTable table;
  describe(table, server);
  return recipe::load_fanout(file, line.overrides, table);
}

Result<RecipeCommand> read_recipe_command(Words words, const OptionTable& table) {
  RecipeCommand command;
  LEVADA_ASSIGN_OR_RETURN(command.line, recipe::parse_command_line(words, table, recipe::Overrides::kCollect));
  if (command.line.help) return command;
  if (command.line.positionals.size() != 1) return invalid_argument("takes one recipe; see --help");
  command.file = command.line.positionals[0];
  LEVADA_ASSIGN_OR_RETURN(command.recipe, load_recipe_of(command.line, command.file));
  return command;
}

void print_usage(const char* usage, const OptionTable& table) {
  std::printf("usage: levada %s\n%s", usage, recipe::print_help(table).c_str());
}

Tokens tokens_from_environment(const recipe::FanoutRecipe& recipe) {
  std::string capture = environment(recipe::kCaptureTokenEnv);
  if (capture.empty()) capture = environment(recipe.fanout.auth_token_env.c_str());
  return {std::move(capture), environment(recipe::kRegistryTokenEnv), environment(recipe::kRegistryAdminTokenEnv)};
}

Result<Tokens> tokens_of_a_role(const recipe::FanoutRecipe& recipe) {
  Tokens tokens = tokens_from_environment(recipe);
  if (tokens.registry.empty()) {
    return invalid_argument(
        "is not set: `levada up` draws one for its roles, one started by hand must be given the same as the others",
        recipe::kRegistryTokenEnv);
  }
  return tokens;
}

Tokens make_tokens(const recipe::FanoutRecipe& recipe) {
  Tokens tokens = tokens_from_environment(recipe);
  for (std::string* token : {&tokens.capture, &tokens.registry, &tokens.registry_admin}) {
    if (token->empty()) *token = random_hex(4);
  }
  return tokens;
}

recipe::PlanContext plan_context(const RecipeCommand& command, const Tokens& tokens) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return {.binary = error ? "levada" : self.string(),
          .recipe_path = command.file,
          .overrides = command.line.overrides,
          .folder = std::filesystem::current_path(error).string(),
          .capture_token = tokens.capture,
          .registry_token = tokens.registry,
          .registry_admin_token = tokens.registry_admin};
}

}  // namespace levada::cli
