#include <cstdio>

#include "cli/fanout_setup.h"
#include "cli/run_terms.h"

namespace levada::cli {

int plan_command(Words words) {
  const OptionTable table;
  const Result<RecipeCommand> command = read_recipe_command(words, table);
  if (!command.ok()) return report(command.status());
  if (command->line.help) {
    print_usage(
        "plan RECIPE [--set section.name=value]...\nprints as JSON which processes `levada up RECIPE` would run",
        table);
    return kExitOk;
  }
  const recipe::LaunchPlan plan = recipe::make_plan(command->recipe, plan_context(*command, Tokens{}));
  std::fputs(recipe::plan_json(plan).c_str(), stdout);
  const Status refused = check_before_start(command->recipe);
  return refused.ok() ? kExitOk : report(refused);
}

}  // namespace levada::cli
