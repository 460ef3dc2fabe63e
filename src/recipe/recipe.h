// What: reads a YAML recipe into option tables.
// Owner: none; values land in the structs behind the table.
// Thread: start-up only.
// Invariant: a recipe is a map of rooms, each a map of options: nothing nests deeper. Unknown rooms and options, bad
// values, duplicates and damaged YAML are kInvalidArgument "FILE:LINE: what is wrong", with the nearest known name.
// Format: docs in README; every key is the flag's name with underscores.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "base/options.h"
#include "base/status.h"

namespace levada::recipe {

inline constexpr std::size_t kMaxRecipeBytes = 1 << 20;

Status load_recipe(const std::filesystem::path& file, const OptionTable& table);
// The same on text; `name` stands for the file in messages.
Status apply_recipe(std::string_view yaml, std::string_view name, const OptionTable& table);

}  // namespace levada::recipe
