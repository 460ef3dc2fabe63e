#include <array>
#include <cstdio>
#include <string_view>

#include "cli/command.h"

namespace {

struct Command {
  std::string_view name;
  int (*run)(levada::cli::Words);
  const char* help;
};

constexpr std::array kCommands{
    Command{"serve", levada::cli::serve_command, "serve a model over HTTP (levada serve --help lists every flag)"},
    Command{"up", levada::cli::up_command, "run a recipe: serve, capture, train several drafts at once"},
    Command{"plan", levada::cli::plan_command, "print which processes a recipe would run"},
    Command{"produce", levada::cli::produce_command, "one role of `up`: the registry and the producer of a recipe"},
    Command{"train", levada::cli::train_command, "one role of `up`: a recipe's consumer (--consumer-id)"},
    Command{"status", levada::cli::status_command, "say how a run of `levada up` stands"},
    Command{"flywheel", levada::cli::flywheel_command, "pause or resume the training on live traffic of a recipe"},
    Command{"draft", levada::cli::draft_command, "load, show, unload or roll back the draft of a running server"},
    Command{"top", levada::cli::top_command, "`status` again and again"},
    Command{"synthesize", levada::cli::synthesize_command,
            "let a serving target ask and answer itself: traffic to learn from"},
    Command{"bench", levada::cli::bench_command, "measure: levada bench NAME --json"},
    Command{"doctor", levada::cli::doctor_command, "say what this machine can and can't do"},
    Command{"version", levada::cli::version_command, "print version and commit"},
};

int usage(std::FILE* to, int exit_code) {
  std::fputs("usage: levada COMMAND [flags]\n\n", to);
  for (const Command& command : kCommands) {
    std::fprintf(to, "  %-10.*s  %s\n", static_cast<int>(command.name.size()), command.name.data(), command.help);
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return usage(stderr, levada::cli::kExitUsage);
  const std::string_view name(argv[1]);
  if (name == "--help" || name == "help") return usage(stdout, levada::cli::kExitOk);
  if (name == "--version") return levada::cli::version_command({});
  for (const Command& command : kCommands) {
    if (command.name == name) {
      return command.run(
          levada::cli::Words(const_cast<const char* const*>(argv) + 2, static_cast<std::size_t>(argc - 2)));
    }
  }
  std::fprintf(stderr, "levada: there is no command '%s'\n", argv[1]);
  return usage(stderr, levada::cli::kExitUsage);
}
