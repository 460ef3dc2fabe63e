#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/pause.h"
#include "cli/fanout_setup.h"
#include "cli/signal_watch.h"
#include "up/flywheel_history.h"
#include "up/run_folder.h"

namespace levada::cli {
namespace {

struct Asked {
  std::filesystem::path control_folder;
  std::filesystem::path history;  // of a flywheel
};

// A folder is a control folder, anything else a recipe that names one.
Result<Asked> asked_for(const recipe::CommandLine& line) {
  if (line.positionals.size() != 1) return invalid_argument("status takes one recipe or control folder");
  std::error_code error;
  if (std::filesystem::is_directory(line.positionals[0], error)) return Asked{line.positionals[0], {}};
  LEVADA_ASSIGN_OR_RETURN(const recipe::FanoutRecipe recipe, load_recipe_of(line, line.positionals[0]));
  Asked asked{recipe.disaggregated.control_dir, {}};
  if (recipe.flywheel) asked.history = std::filesystem::path(recipe.flywheel_folder()) / "flywheel.jsonl";
  return asked;
}

Status print_status(const recipe::CommandLine& line, bool json) {
  LEVADA_ASSIGN_OR_RETURN(const Asked asked, asked_for(line));
  const std::filesystem::path& folder = asked.control_folder;
  LEVADA_ASSIGN_OR_RETURN(const up::StatusFile status, up::read_status(folder));
  if (json) {
    std::fputs(status.summary.c_str(), stdout);
    return {};
  }
  // A launcher that was killed outright leaves its last phase behind.
  if (up::is_held(folder))
    std::printf("%s, process %lld\n", status.phase.c_str(), static_cast<long long>(status.pid));
  else
    std::printf("not running; last seen %s\n", status.phase.c_str());
  std::fputs(status.text.c_str(), stdout);
  constexpr std::size_t kShownRounds = 5;
  std::ifstream history(asked.history);
  std::fputs(up::history_text(history, kShownRounds).c_str(), stdout);
  return {};
}

}  // namespace

int status_command(Words words) {
  bool json = false;
  OptionTable table;
  table.begin_room("status");
  table.add("json", &json, "print the summary as one JSON object");
  const auto line = recipe::parse_command_line(words, table, recipe::Overrides::kCollect);
  if (!line.ok()) return report(line.status());
  if (line->help) {
    print_usage("status RECIPE|CONTROL_DIR [--json]\nsays how a run of `levada up` stands", table);
    return kExitOk;
  }
  const Status status = print_status(*line, json);
  return status.ok() ? kExitOk : report(status);
}

int top_command(Words words) {
  double interval_s = 1;
  OptionTable table;
  table.begin_room("top");
  table.add("interval", &interval_s, "seconds between looks").range(0.1, 3600);
  const auto line = recipe::parse_command_line(words, table, recipe::Overrides::kCollect);
  if (!line.ok()) return report(line.status());
  if (line->help) {
    print_usage("top RECIPE|CONTROL_DIR [--interval S]\n`levada status` again and again, until Ctrl-C", table);
    return kExitOk;
  }
  SignalWatch signals;
  StoppablePause pause;
  signals.on_stop([&] { pause.stop(); });
  Status status;
  do {
    std::fputs("\033[H\033[J", stdout);  // a clean screen, from its top
    status = print_status(*line, false);
    std::fflush(stdout);
  } while (status.ok() && pause.wait_us(static_cast<std::int64_t>(interval_s * 1e6)));
  signals.on_stop({});
  return status.ok() ? kExitOk : report(status);
}

}  // namespace levada::cli
