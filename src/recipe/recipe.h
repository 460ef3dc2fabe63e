// What: Recipe, a YAML file of options in sections, applied to the option tables of whoever knows those sections.
// Owner: the caller; values land in the structs behind the tables.
// Thread: start-up only.
// Invariant: unknown sections and options, bad values, duplicates and damaged YAML are kInvalidArgument
// "FILE:LINE: what is wrong", or "--set PATH: what is wrong", with the nearest known name. Nothing is applied in silence.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/status.h"

namespace levada::recipe {

inline constexpr std::size_t kMaxRecipeBytes = 1 << 20;
inline constexpr std::size_t kMaxItems = 1024;  // of one list

class Recipe {
 public:
  static Result<Recipe> load(const std::filesystem::path& file);
  // The same on text; `name` stands for the file in messages.
  static Result<Recipe> parse(std::string_view yaml, std::string_view name);

  // "a.b=value" as if the recipe said so; a value in [..] or {..} is read as YAML, and a number names an item of a list
  // ("consumers.0.seed=1"). What the path leads to is checked when it is applied.
  Status override_with(std::string_view assignment);

  // Sets every option that the recipe names. A dotted section is a map in a map. `lists`: paths of lists whose items are
  // sections themselves; they are left to apply_item().
  Status apply(const OptionTable& table, const std::vector<std::string>& lists = {}) const;
  // How many items the list at `path` has; 0 if the recipe has no such list.
  Result<std::size_t> items(const std::string& path) const;
  // Sets the options of item `index` of that list. In `table` the item's section is named "path[index]".
  Status apply_item(const std::string& path, std::size_t index, const OptionTable& table) const;
  // Whether the recipe says anything under this dotted path.
  bool names(const std::string& path) const;

 private:
  struct Tree;
  std::shared_ptr<const Tree> tree_;  // shared by copies: YAML nodes are handles anyway
};

// Recipe::load and apply in one.
Status load_recipe(const std::filesystem::path& file, const OptionTable& table);
Status apply_recipe(std::string_view yaml, std::string_view name, const OptionTable& table);

}  // namespace levada::recipe
