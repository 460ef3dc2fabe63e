#include "recipe/recipe.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

namespace levada::recipe {
namespace {

std::string at(std::string_view name, const YAML::Mark& mark) {
  std::string text(name);
  if (!mark.is_null()) text += ":" + std::to_string(mark.line + 1);
  return text + ": ";
}

std::string joined(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t dot = std::min(path.find('.', from), path.size());
    parts.emplace_back(path.substr(from, dot - from));
    from = dot + 1;
  }
  return parts;
}

std::optional<std::size_t> index_of(const std::string& text) {
  std::size_t index = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped_at, error] = std::from_chars(text.data(), end, index);
  if (error != std::errc() || stopped_at != end) return std::nullopt;
  return index;
}

// The node below `parent` that one part of a path names; undefined if there is none.
YAML::Node child_of(const YAML::Node& parent, const std::string& part) {
  if (parent.IsMap()) return parent[part];
  if (parent.IsSequence()) {
    const auto index = index_of(part);
    if (index && *index < parent.size()) return parent[*index];
  }
  return YAML::Node(YAML::NodeType::Undefined);
}

}  // namespace

struct Recipe::Tree {
  std::string name;
  YAML::Node root;
  std::vector<std::string> overridden;  // paths that `--set` wrote

  // A fault in what `--set` wrote has no line in the file.
  Status fault(const std::string& path, const YAML::Node& node, const std::string& what) const {
    for (const std::string& by_hand : overridden) {
      if (path == by_hand || path.starts_with(by_hand + ".") || path.starts_with(by_hand + "[")) {
        return invalid_argument("--set " + by_hand + ": " + what);
      }
    }
    return invalid_argument(at(name, node.Mark()) + what);
  }

  YAML::Node find(const std::string& path) const {
    YAML::Node node;
    node.reset(root);
    for (const std::string& part : split_path(path)) {
      const YAML::Node next = child_of(node, part);
      if (!next.IsDefined()) return next;
      node.reset(next);
    }
    return node;
  }

  // Calls visit(key node, key text, value) for each entry; refuses what is not a map, odd keys and duplicates.
  template <class Visit>
  Status for_each_entry(const std::string& section, const YAML::Node& map, Visit visit) const {
    const std::string what = section.empty() ? "a recipe" : "section '" + section + "'";
    if (!map.IsMap()) return fault(section, map, what + " must be a map of names to values");
    std::set<std::string> seen;
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) return fault(section, entry.first, "a name in " + what + " must be plain text");
      const std::string key = entry.first.Scalar();
      if (!seen.insert(key).second) return fault(section, entry.first, "'" + key + "' appears twice in " + what);
      LEVADA_RETURN_IF_ERROR(visit(entry.first, key, entry.second));
    }
    return {};
  }

  // A list of plain values, or a map of them as "name=value".
  Result<std::vector<std::string>> list_of(const std::string& path, const YAML::Node& value) const {
    std::vector<std::string> items;
    if (value.IsMap()) {
      LEVADA_RETURN_IF_ERROR(
          for_each_entry(path, value, [&](const YAML::Node&, const std::string& key, const YAML::Node& item) {
            if (!item.IsScalar()) return fault(path, item, path + "." + key + " must be a single value");
            items.push_back(key + "=" + item.Scalar());
            return Status();
          }));
      return items;
    }
    if (!value.IsSequence()) return fault(path, value, path + " must be a list");
    if (value.size() > kMaxItems) {
      return fault(path, value, path + " must have at most " + std::to_string(kMaxItems) + " items");
    }
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) return fault(path, item, "an item of " + path + " must be a single value");
      items.push_back(item.Scalar());
    }
    return items;
  }

  // YAML has several spellings of null (null, ~, nothing at all); options know one, and most know none.
  Status set(const OptionTable::Option& option, const YAML::Node& key_node, const YAML::Node& value) const {
    const std::string path = option.path();
    if (option.is_list()) {
      LEVADA_ASSIGN_OR_RETURN(std::vector<std::string> items, list_of(path, value));
      return option.set_list(std::move(items));
    }
    if (value.IsNull() && !option.takes_null()) {
      return fault(path, key_node, path + " must be " + option.allowed() + ", got null");
    }
    if (!value.IsScalar() && !value.IsNull()) return fault(path, value, path + " must be a single value");
    const Status accepted = option.set(value.IsNull() ? "null" : value.Scalar());
    return accepted.ok() ? accepted : fault(path, key_node, accepted.message());
  }

  Status walk(const std::string& section, const YAML::Node& map, const OptionTable& table,
              const std::vector<std::string>& lists) const {
    return for_each_entry(section, map,
                          [&](const YAML::Node& key_node, const std::string& key, const YAML::Node& value) -> Status {
                            const std::string path = joined(section, key);
                            if (std::find(lists.begin(), lists.end(), path) != lists.end()) return {};
                            const OptionTable::Option* option = table.find(section, key);
                            if (option != nullptr) return set(*option, key_node, value);
                            if (table.has_room(path))
                              return value.IsNull() ? Status() : walk(path, value, table, lists);
                            std::vector<std::string> more;
                            for (const std::string& list : lists) {
                              if (list.size() > section.size() && list.starts_with(section))
                                more.push_back(split_path(list).back());
                            }
                            return fault(path, key_node, table.unknown_name(section, key, more).message());
                          });
  }
};

Result<Recipe> Recipe::parse(std::string_view yaml, std::string_view name) {
  if (yaml.size() > kMaxRecipeBytes) {
    return invalid_argument(std::string(name) + ": " + std::to_string(yaml.size()) + " bytes; a recipe has at most " +
                            std::to_string(kMaxRecipeBytes));
  }
  auto tree = std::make_shared<Tree>();
  tree->name = name;
  try {
    tree->root = YAML::Load(std::string(yaml));
    if (tree->root.IsNull()) tree->root = YAML::Node(YAML::NodeType::Map);
  } catch (const YAML::Exception& error) {
    return invalid_argument(at(name, error.mark) + "not valid YAML: " + error.msg);
  }
  Recipe recipe;
  recipe.tree_ = std::move(tree);
  return recipe;
}

Result<Recipe> Recipe::load(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return not_found("cannot read the recipe " + file.string());
  std::string text;
  text.resize(kMaxRecipeBytes + 1);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.empty() && in.bad()) return not_found("cannot read the recipe " + file.string());
  return parse(text, file.string());
}

Status Recipe::override_with(std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return invalid_argument("--set takes section.name=value, got '" + std::string(assignment) + "'");
  }
  const std::string path(assignment.substr(0, equals)), text(assignment.substr(equals + 1));
  const std::vector<std::string> parts = split_path(path);
  auto changed = std::make_shared<Tree>(*tree_);
  std::string shown;  // as messages name it: items are "list[0]" there and "list.0" in the path
  try {
    changed->root = YAML::Clone(tree_->root);
    const bool structured = text.starts_with('[') || text.starts_with('{');
    const YAML::Node value = structured ? YAML::Load(text) : YAML::Node(text);
    YAML::Node at_part;
    at_part.reset(changed->root);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool last = i + 1 == parts.size();
      const bool item = at_part.IsSequence();
      shown += item ? "[" + parts[i] + "]" : (shown.empty() ? "" : ".") + parts[i];
      if (at_part.IsMap()) {
        YAML::Node child = at_part[parts[i]];
        if (last)
          child = value;
        else if (!child.IsDefined() || child.IsNull())
          child = YAML::Node(YAML::NodeType::Map);
        at_part.reset(child);
      } else {
        YAML::Node child = child_of(at_part, parts[i]);
        if (!child.IsDefined()) return invalid_argument("there is nothing of the name " + parts[i], "--set " + path);
        if (last) child = value;
        at_part.reset(child);
      }
    }
  } catch (const YAML::Exception& error) {
    return invalid_argument("not valid YAML: " + error.msg, "--set " + path);
  }
  changed->overridden.push_back(std::move(shown));
  tree_ = std::move(changed);
  return {};
}

Status Recipe::apply(const OptionTable& table, const std::vector<std::string>& lists) const {
  try {
    return tree_->walk("", tree_->root, table, lists);
  } catch (const YAML::Exception& error) {
    return invalid_argument(at(tree_->name, error.mark) + "not valid YAML: " + error.msg);
  }
}

Result<std::size_t> Recipe::items(const std::string& path) const {
  const YAML::Node list = tree_->find(path);
  if (!list.IsDefined() || list.IsNull()) return std::size_t{0};
  if (!list.IsSequence()) return tree_->fault(path, list, path + " must be a list");
  if (list.size() > kMaxItems) {
    return tree_->fault(path, list, path + " must have at most " + std::to_string(kMaxItems) + " items");
  }
  return list.size();
}

Status Recipe::apply_item(const std::string& path, std::size_t index, const OptionTable& table) const {
  try {
    return tree_->walk(path + "[" + std::to_string(index) + "]", tree_->find(path + "." + std::to_string(index)), table,
                       {});
  } catch (const YAML::Exception& error) {
    return invalid_argument(at(tree_->name, error.mark) + "not valid YAML: " + error.msg);
  }
}

bool Recipe::names(const std::string& path) const { return tree_->find(path).IsDefined(); }

Status load_recipe(const std::filesystem::path& file, const OptionTable& table) {
  LEVADA_ASSIGN_OR_RETURN(const Recipe recipe, Recipe::load(file));
  return recipe.apply(table);
}

Status apply_recipe(std::string_view yaml, std::string_view name, const OptionTable& table) {
  LEVADA_ASSIGN_OR_RETURN(const Recipe recipe, Recipe::parse(yaml, name));
  return recipe.apply(table);
}

}  // namespace levada::recipe
