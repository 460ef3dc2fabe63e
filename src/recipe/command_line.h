// What: turns a command line into option values: recipe first, then `--set` and flags, later ones winning.
// Owner: none; values land in the structs behind the table.
// Thread: start-up only.
// Invariant: an unknown flag is an error with the nearest name unless the caller collects them; nothing is taken from the environment.
// Why not CLI11: flags come from OptionTable, and CLI11 reports an unknown flag without the nearest known name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/status.h"

namespace levada::recipe {

// What `--set` does: with a table of all options it sets one of them at once; a command whose recipe has more structure
// than a table collects them.
enum class Overrides { kApply, kCollect };

// What becomes of a flag that no option has: an error; or it is collected with the words behind it.
enum class UnknownFlags { kRefuse, kCollect };

struct UnknownFlag {
  std::string name;   // with its dashes
  std::string value;  // the words up to the next flag, with blanks between them
};

struct CommandLine {
  bool help = false;
  std::vector<UnknownFlag> unknown;      // if collected, in order
  std::vector<std::string> overrides;    // what was collected, in order
  std::vector<std::string> positionals;  // words that belong to no flag
};

// Accepts `--flag value`, `--flag=value`, `--flag word word` where an option takes several, `--switch`, `--switch=false`,
// `--set room.name=value`, `--recipe FILE`, `--help`.
Result<CommandLine> parse_command_line(std::span<const char* const> words, const OptionTable& table,
                                       Overrides overrides = Overrides::kApply,
                                       UnknownFlags unknown = UnknownFlags::kRefuse);

// One paragraph per option: flags, help, default, what is allowed.
std::string print_help(const OptionTable& table);

}  // namespace levada::recipe
