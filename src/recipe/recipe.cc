#include "recipe/recipe.h"

#include <yaml-cpp/yaml.h>

#include <fstream>
#include <iterator>
#include <set>

namespace levada::recipe {
namespace {

std::string at(std::string_view name, const YAML::Mark& mark) {
  std::string text(name);
  if (!mark.is_null()) text += ":" + std::to_string(mark.line + 1);
  return text + ": ";
}

Status fault(std::string_view name, const YAML::Node& node, const std::string& what) {
  return invalid_argument(at(name, node.Mark()) + what);
}

// Calls visit(key node, key text, value) for each entry; refuses what is not a map, odd keys and duplicates.
template <class Visit>
Status for_each_entry(std::string_view name, const YAML::Node& map, const std::string& what, Visit visit) {
  if (!map.IsMap()) return fault(name, map, what + " must be a map of names to values");
  std::set<std::string> seen;
  for (const auto& entry : map) {
    if (!entry.first.IsScalar()) return fault(name, entry.first, "a name in " + what + " must be plain text");
    const std::string key = entry.first.Scalar();
    if (!seen.insert(key).second) return fault(name, entry.first, "'" + key + "' appears twice in " + what);
    LEVADA_RETURN_IF_ERROR(visit(entry.first, key, entry.second));
  }
  return {};
}

// YAML has several spellings of null (null, ~, nothing at all); options know one, and most know none.
Status apply_option(const std::string& room, const std::string& key, const YAML::Node& value,
                    const OptionTable& table) {
  if (!value.IsNull()) return table.set(room, key, value.Scalar());
  const OptionTable::Option* option = table.find(room, key);
  if (option != nullptr && !option->takes_null())
    return invalid_argument(room + "." + key + " must be " + option->allowed() + ", got null");
  return table.set(room, key, "null");
}

Status apply_room(std::string_view name, const std::string& room, const YAML::Node& options, const OptionTable& table) {
  if (options.IsNull()) return {};
  return for_each_entry(name, options, "section '" + room + "'",
                        [&](const YAML::Node& key_node, const std::string& key, const YAML::Node& value) -> Status {
                          if (!value.IsScalar() && !value.IsNull())
                            return fault(name, value, room + "." + key + " must be a single value");
                          const Status set = apply_option(room, key, value, table);
                          return set.ok() ? set : fault(name, key_node, set.message());
                        });
}

}  // namespace

Status apply_recipe(std::string_view yaml, std::string_view name, const OptionTable& table) {
  if (yaml.size() > kMaxRecipeBytes) {
    return invalid_argument(std::string(name) + ": " + std::to_string(yaml.size()) + " bytes; a recipe has at most " +
                            std::to_string(kMaxRecipeBytes));
  }
  YAML::Node root;
  try {
    root = YAML::Load(std::string(yaml));
    if (root.IsNull()) return {};
    return for_each_entry(name, root, "a recipe",
                          [&](const YAML::Node&, const std::string& room, const YAML::Node& options) {
                            return apply_room(name, room, options, table);
                          });
  } catch (const YAML::Exception& error) {
    return invalid_argument(at(name, error.mark) + "not valid YAML: " + error.msg);
  }
}

Status load_recipe(const std::filesystem::path& file, const OptionTable& table) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return not_found("cannot read the recipe " + file.string());
  std::string text;
  text.resize(kMaxRecipeBytes + 1);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.empty() && in.bad()) return not_found("cannot read the recipe " + file.string());
  return apply_recipe(text, file.string(), table);
}

}  // namespace levada::recipe
