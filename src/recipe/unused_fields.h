// What: UnusedFields, what a SpecForge recipe may say that has no effect here, and what may say one thing only.
// Owner: the reader of one recipe; tables point into it.
// Thread: start-up only.
// Invariant: a field that would change the captured numbers or the training is refused unless it asks for what levada
// does anyway; all others load and are named in a notice.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace levada::recipe {

class UnusedFields {
 public:
  // Adds the fields of every section but items of lists.
  void describe(OptionTable& table);
  // Adds those of a capture server, whose section is `path`.
  void describe_server(OptionTable& table, const std::string& path);
  // kInvalidArgument for a field that may not have the value it was given.
  Status check() const;
  // Paths of the fields that `recipe` mentions.
  std::vector<std::string> mentioned(const Recipe& recipe) const;

 private:
  struct Field {
    std::string path;
    std::optional<std::string> only;  // the one value besides null that is allowed
    std::optional<std::string> value;
  };
  void add(OptionTable& table, const std::string& section, const char* names);
  void add_lists(OptionTable& table, const std::string& section, const char* names);
  void add_fixed(OptionTable& table, const std::string& section, const char* name, const char* only);

  std::deque<Field> fields_;  // addresses must stay
  std::deque<std::vector<std::string>> lists_;
  std::vector<std::string> list_paths_;
};

}  // namespace levada::recipe
