#include "recipe/command_line.h"

#include <algorithm>
#include <optional>

#include "recipe/recipe.h"

namespace levada::recipe {
namespace {

struct Flag {
  std::string name;                  // with its dashes
  std::optional<std::string> value;  // from `--flag=value`
};

Flag split_flag(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return {std::string(word), std::nullopt};
  return {std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))};
}

// Walks the words; the two passes (recipe first, then everything else) differ only in what they act on.
class Reader {
 public:
  Reader(std::span<const char* const> words, const OptionTable& table, Overrides overrides, UnknownFlags unknown)
      : words_(words), table_(table), overrides_(overrides), unknown_(unknown) {}

  Status read(bool recipes_only, CommandLine& line) {
    for (next_ = 0; next_ < words_.size();) {
      const std::string_view word = words_[next_++];
      if (!word.starts_with("--")) {
        if (word.starts_with("-") && word.size() > 1) return unknown(word);
        if (!recipes_only) line.positionals.emplace_back(word);
        continue;
      }
      LEVADA_RETURN_IF_ERROR(act(split_flag(word), recipes_only, line));
    }
    return {};
  }

 private:
  Status unknown(std::string_view word) const { return table_.unknown_flag(word); }

  Result<std::string> value_of(const Flag& flag) {
    if (flag.value) return *flag.value;
    if (next_ >= words_.size()) return invalid_argument(flag.name + " needs a value");
    return std::string(words_[next_++]);
  }

  // A flag begins here, and not a negative number.
  bool at_flag() const {
    const std::string_view word = words_[next_];
    return word.starts_with("-") && word.size() > 1 && (word[1] < '0' || word[1] > '9');
  }

  std::string words_up_to_next_flag(const char* between) {
    std::string text;
    for (; next_ < words_.size() && !at_flag(); ++next_)
      text += (text.empty() ? "" : between) + std::string(words_[next_]);
    return text;
  }

  Status act(const Flag& flag, bool recipes_only, CommandLine& line) {
    if (flag.name == "--help") {
      line.help = true;
      return {};
    }
    if (flag.name == "--recipe") {
      LEVADA_ASSIGN_OR_RETURN(const std::string file, value_of(flag));
      return recipes_only ? load_recipe(file, table_) : Status();
    }
    if (flag.name == "--set") {
      LEVADA_ASSIGN_OR_RETURN(const std::string assignment, value_of(flag));
      if (recipes_only) return {};
      if (overrides_ == Overrides::kApply) return set(assignment);
      line.overrides.push_back(assignment);
      return {};
    }
    const OptionTable::Option* option = table_.find_flag(flag.name);
    if (option == nullptr) {
      if (unknown_ == UnknownFlags::kRefuse) return unknown(flag.name);
      const std::string words = flag.value ? *flag.value : words_up_to_next_flag(" ");
      if (!recipes_only) line.unknown.push_back({flag.name, words});
      return {};
    }
    std::string value = "true";
    if (option->takes_several_words() && !flag.value) {
      value = words_up_to_next_flag(",");
      if (value.empty()) return invalid_argument(flag.name + " needs a value");
    } else if (!option->is_switch() || flag.value) {
      LEVADA_ASSIGN_OR_RETURN(value, value_of(flag));
    }
    return recipes_only ? Status() : option->set(value);
  }

  Status set(std::string_view assignment) const {
    const std::size_t dot = assignment.find('.');
    const std::size_t equals = assignment.find('=');
    if (dot == std::string_view::npos || equals == std::string_view::npos || dot > equals) {
      return invalid_argument("--set takes room.name=value, got '" + std::string(assignment) + "'");
    }
    return table_.set(assignment.substr(0, dot), assignment.substr(dot + 1, equals - dot - 1),
                      assignment.substr(equals + 1));
  }

  std::span<const char* const> words_;
  const OptionTable& table_;
  const Overrides overrides_;
  const UnknownFlags unknown_;
  std::size_t next_ = 0;
};

}  // namespace

Result<CommandLine> parse_command_line(std::span<const char* const> words, const OptionTable& table,
                                       Overrides overrides, UnknownFlags unknown) {
  CommandLine line;
  Reader reader(words, table, overrides, unknown);
  LEVADA_RETURN_IF_ERROR(reader.read(/*recipes_only=*/true, line));
  LEVADA_RETURN_IF_ERROR(reader.read(/*recipes_only=*/false, line));
  return line;
}

std::string print_help(const OptionTable& table) {
  std::string text;
  std::string room;
  for (const OptionTable::Option& option : table.options()) {
    if (option.room() != room) {
      room = option.room();
      text += "\n" + room + ":\n";
    }
    text += "  ";
    for (const std::string& flag : option.flags()) text += flag + " ";
    text += "\n      " + option.help();
    if (!option.allowed().empty()) text += " [" + option.allowed() + "]";
    if (!option.value().empty()) text += " (default " + option.value() + ")";
    text += "\n";
  }
  return text;
}

}  // namespace levada::recipe
