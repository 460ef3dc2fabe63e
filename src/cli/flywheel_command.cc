// `levada flywheel run|pause|resume RECIPE`: the role of `levada up` that trains on live traffic, and its switch.
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "cli/fanout_setup.h"
#include "cli/model_locator.h"
#include "cli/run_setup.h"
#include "cli/signal_watch.h"
#include "producer/prompt_file.h"
#include "producer/prompt_text.h"
#include "up/flywheel.h"

namespace levada::cli {
namespace {

void tell(const up::Event& event) {
  std::printf("%s\n", up::to_line(event).c_str());
  std::fflush(stdout);
}

std::string flag_of(const recipe::FanoutRecipe& recipe, const std::string& name) {
  for (const auto& [flag, value] : recipe.server_flags) {
    if (flag == name) return value;
  }
  return {};
}

std::vector<std::string> synthesize_words(const recipe::FanoutRecipe& recipe, const std::string& binary) {
  const recipe::FlywheelSection& rules = *recipe.flywheel;
  if (!rules.questions) return {};
  std::vector<std::string> words{
      binary, "synthesize", "--url", recipe::server_urls(recipe).front(), "--model", recipe.model.target_model_path};
  const auto add = [&](const char* flag, const std::optional<std::int64_t>& value) {
    if (value) words.insert(words.end(), {flag, std::to_string(*value)});
  };
  add("--questions", rules.questions);
  add("--connections", rules.connections);
  add("--batch", rules.batch);
  add("--max-question-tokens", rules.max_question_tokens);
  add("--max-answer-tokens", rules.max_answer_tokens);
  return words;
}

// The tokens that the target is to answer.
Result<std::vector<std::vector<std::int32_t>>> eval_prompts_of(const recipe::FanoutRecipe& recipe) {
  std::vector<std::vector<std::int32_t>> tokens;
  if (!recipe.flywheel->eval_prompts) return tokens;
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path model, locate_model(recipe.model.target_model_path));
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path tokenizer, locate_tokenizer(model, ""));
  LEVADA_ASSIGN_OR_RETURN(const producer::TokenizePrompt tokenize, producer::open_prompt_tokenizer(tokenizer));
  LEVADA_ASSIGN_OR_RETURN(const auto prompts, producer::read_prompts(*recipe.flywheel->eval_prompts, 0));
  for (const producer::Prompt& prompt : prompts) {
    LEVADA_ASSIGN_OR_RETURN(auto ids, tokenize(prompt));
    tokens.push_back(std::move(ids));
  }
  return tokens;
}

Status run(const RecipeCommand& command) {
  up::Flywheel::Setup setup;
  setup.recipe = command.recipe;
  const recipe::PlanContext context = plan_context(command, {});
  setup.up_words = {context.binary, "up", context.recipe_path};
  for (const std::string& assignment : context.overrides) {
    setup.up_words.insert(setup.up_words.end(), {"--set", assignment});
  }
  setup.synthesize = synthesize_words(command.recipe, context.binary);
  LEVADA_ASSIGN_OR_RETURN(setup.eval_prompts, eval_prompts_of(command.recipe));
  const std::string admin = flag_of(command.recipe, "--admin-api-key");
  setup.server_key = admin.empty() ? flag_of(command.recipe, "--api-key") : admin;
  setup.tell = tell;
  setup.unix_s = [] { return static_cast<std::int64_t>(std::time(nullptr)); };
  SignalWatch signals;
  StoppablePause pause;
  signals.on_stop([&] { pause.stop(); });
  const SystemClock clock;
  up::Flywheel flywheel(std::move(setup), clock, pause);
  const Status status = flywheel.run();
  signals.on_stop({});
  return status;
}

// The switch is a file, so that it outlives whoever is started again.
Status set_paused(const recipe::FanoutRecipe& recipe, bool paused) {
  const std::filesystem::path file = std::filesystem::path(recipe.flywheel_folder()) / "pause";
  std::error_code error;
  if (!paused) {
    std::filesystem::remove(file, error);
    return error ? unavailable("cannot delete " + file.string()) : Status();
  }
  std::filesystem::create_directories(file.parent_path(), error);
  std::ofstream out(file);
  return out.flush() ? Status() : unavailable("cannot write " + file.string());
}

Status obey(const std::string& verb, const RecipeCommand& command) {
  if (!command.recipe.flywheel) return invalid_argument("has no section flywheel", command.file);
  if (verb == "run") return run(command);
  return set_paused(command.recipe, verb == "pause");
}

}  // namespace

int flywheel_command(Words words) {
  OptionTable table;
  const std::string verb = words.empty() ? "" : words[0];
  if (verb != "run" && verb != "pause" && verb != "resume") {
    print_usage(
        "flywheel pause|resume RECIPE [--set section.name=value]...\n"
        "stops or takes up the training on live traffic; `levada up RECIPE` runs it (levada flywheel run)",
        table);
    return verb == "--help" ? kExitOk : kExitUsage;
  }
  const Result<RecipeCommand> command = read_recipe_command(words.subspan(1), table);
  if (!command.ok()) return report(command.status());
  const Status status = obey(verb, *command);
  return status.ok() ? kExitOk : report(status);
}

}  // namespace levada::cli
