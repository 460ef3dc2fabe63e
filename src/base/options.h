// What: OptionTable, the one description of a room's options that recipes, `--set` and command-line flags read.
// Owner: each room's Options struct owns its values and their defaults; a table points to them while parsing.
// Thread: start-up only.
// Invariant: every option has one name; `chunked_prefill_size` in YAML is `--chunked-prefill-size` as a flag. Options of
// a section (begin_section) are reached by recipes and `--set` only.
// A bad value names the option, what was given and what is allowed; an unknown name is answered with the nearest one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace levada {

class OptionTable {
 public:
  class Option {
   public:
    // A second spelling of the flag, e.g. flag_alias("model") accepts --model as well.
    Option& flag_alias(std::string flag);
    // On a command line the flag takes all words up to the next flag, `--layers 1 9 17`, as "1,9,17"; texts only.
    Option& several_words();
    // Allowed range, both ends included; numbers only.
    Option& range(double min, double max);
    // Allowed words; strings only.
    Option& choices(std::vector<std::string> words);

    const std::string& room() const { return room_; }
    const std::string& name() const { return name_; }
    const std::string& help() const { return help_; }
    // "sched.chunked_prefill_size"
    std::string path() const { return room_.empty() ? name_ : room_ + "." + name_; }
    // "--chunked-prefill-size", then its aliases; none in a section.
    const std::vector<std::string>& flags() const { return flags_; }
    bool is_switch() const { return is_switch_; }
    bool takes_several_words() const { return several_words_; }
    bool is_text() const {
      return std::holds_alternative<std::string*>(target_) ||
             std::holds_alternative<std::optional<std::string>*>(target_);
    }
    // A list of texts: set_list() sets it, set() refuses.
    bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(target_); }
    // "null" unsets it; any other option has a value always.
    bool takes_null() const {
      return std::holds_alternative<std::optional<std::int64_t>*>(target_) ||
             std::holds_alternative<std::optional<double>*>(target_) ||
             std::holds_alternative<std::optional<std::string>*>(target_);
    }
    // The present value in the form a recipe would write it; an unset optional is "null", a list "[a, b]".
    std::string value() const;
    // "a whole number from 1 to 65536": what set() accepts, for messages and --help.
    std::string allowed() const;
    // Parses and stores; kInvalidArgument naming the option, the value and what is allowed. Numbers are strict: no
    // blanks, no trailing text, nothing that overflows, no NaN or infinity. Text must not be empty: an option is left
    // out to keep its default. A refused value leaves the old one in place.
    Status set(std::string_view text) const;
    // Replaces the whole list; kInvalidArgument if the option is none.
    Status set_list(std::vector<std::string> items) const;

   private:
    friend class OptionTable;
    using Target = std::variant<std::string*, std::int64_t*, double*, bool*, std::optional<std::int64_t>*,
                                std::optional<double>*, std::optional<std::string>*, std::vector<std::string>*>;
    // How messages name it: path and flag.
    std::string named() const;
    // A text that must not be empty where emptiness is no way to say "none".
    bool refuses_empty() const { return std::holds_alternative<std::string*>(target_) && choices_.empty(); }
    std::string room_, name_, help_;
    std::vector<std::string> flags_;
    bool is_switch_ = false;
    bool several_words_ = false;
    std::optional<std::pair<double, double>> range_;
    std::vector<std::string> choices_;
    Target target_;
  };

  // Options added from here on belong to `room` ("sched"): the YAML section and the prefix of `--set room.name=value`.
  void begin_room(std::string room);
  // The same without flags; `path` may be dotted ("deployment.trainer") or empty (the top of a recipe).
  void begin_section(std::string path);
  // `target` must outlive the table; its present value is the default. The returned reference is for chaining only: the
  // next add() ends it.
  Option& add(std::string name, std::string* target, std::string help);
  Option& add(std::string name, std::int64_t* target, std::string help);
  Option& add(std::string name, double* target, std::string help);
  Option& add(std::string name, bool* target, std::string help);
  // Unset until given.
  Option& add(std::string name, std::optional<std::int64_t>* target, std::string help);
  Option& add(std::string name, std::optional<double>* target, std::string help);
  // An empty text unsets it as "null" does.
  Option& add(std::string name, std::optional<std::string>* target, std::string help);
  Option& add(std::string name, std::vector<std::string>* target, std::string help);

  // nullptr if there is none. A flag carries its dashes: "--port".
  const Option* find_flag(std::string_view flag) const;
  const Option* find(std::string_view room, std::string_view name) const;
  // Whether `room` is a room or section, or a part of one's path.
  bool has_room(std::string_view room) const;
  // "unknown option sched.chunk (did you mean …?)"; `more` are names that are known in that room without being options.
  Status unknown_name(std::string_view room, std::string_view name, const std::vector<std::string>& more = {}) const;
  // kInvalidArgument for an unknown room or name, with the nearest known one if any is near.
  Status set(std::string_view room, std::string_view name, std::string_view value) const;
  // "unknown flag --chunked-prefil-size (did you mean --chunked-prefill-size?)"
  Status unknown_flag(std::string_view flag) const;
  const std::vector<Option>& options() const { return options_; }

 private:
  Option& add_option(std::string name, std::string help, Option::Target target);

  std::string room_;
  bool flags_ = true;  // whether options added now get a flag
  std::vector<Option> options_;
};

}  // namespace levada
