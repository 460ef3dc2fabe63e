// Reads what stands beside a tokenizer.json: tokenizer_config.json and chat_template.jinja, both optional.
#include <algorithm>
#include <system_error>

#include "text/json_fields.h"
#include "text/tokenizer_spec.h"

namespace levada::text {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 64u << 20;
constexpr std::uint64_t kMaxTemplateBytes = 1u << 20;

std::optional<Token> id_of_text(const TokenizerSpec& spec, std::string_view text) {
  for (const AddedToken& token : spec.added) {
    if (token.text == text) return token.id;
  }
  for (const auto* table : {&spec.verbatim, &spec.mergeable}) {
    const auto found = std::find(table->begin(), table->end(), text);
    if (found != table->end() && !text.empty()) return static_cast<Token>(found - table->begin());
  }
  return std::nullopt;
}

// bos_token and eos_token are a string or an object with "content".
Status read_special(JsonElement root, std::string_view name, const TokenizerSpec& spec, std::optional<Token>& id) {
  const auto found = member(root, name);
  if (!found) return {};
  std::string_view text;
  if (found->is_object()) {
    LEVADA_ASSIGN_OR_RETURN(text, required<std::string_view>(*found, "content", "a string"));
  } else if (found->get(text) != simdjson::SUCCESS) {
    return wrong_type(name, "a string or an object with \"content\"");
  }
  id = id_of_text(spec, text);
  if (!id) return data_loss(std::string(name) + " " + in_quotes(text) + " is not in the vocabulary");
  return {};
}

// An explicit add_bos_token or add_eos_token overrides the post-processor.
Status apply_switch(JsonElement root, std::string_view name, std::optional<Token> id, std::vector<Token>& list) {
  if (!member(root, name)) return {};
  LEVADA_ASSIGN_OR_RETURN(const bool on, required<bool>(root, name, "a boolean"));
  if (!id) return {};
  const bool there = std::find(list.begin(), list.end(), *id) != list.end();
  if (on && !there) list.insert(list.begin(), *id);
  if (!on) std::erase(list, *id);
  return {};
}

// chat_template is a string, or a list of {name, template} of which "default" is ours.
Status read_chat_template(JsonElement root, TokenizerSpec& spec) {
  const auto found = member(root, "chat_template");
  if (!found) return {};
  std::string_view source;
  if (found->get(source) == simdjson::SUCCESS) {
    spec.chat_template = source;
    return {};
  }
  simdjson::dom::array entries;
  if (found->get(entries) != simdjson::SUCCESS) return wrong_type("chat_template", "a string or a list");
  for (const JsonElement entry : entries) {
    if (!entry.is_object()) return wrong_type("chat_template", "a list of objects");
    LEVADA_ASSIGN_OR_RETURN(const auto name, required<std::string_view>(entry, "name", "a string (chat_template)"));
    LEVADA_ASSIGN_OR_RETURN(source, required<std::string_view>(entry, "template", "a string (chat_template)"));
    if (name == "default") spec.chat_template = source;
  }
  return {};
}

Status read_config_root(JsonElement root, TokenizerSpec& spec) {
  if (!root.is_object()) return data_loss("the file must hold one JSON object");
  LEVADA_RETURN_IF_ERROR(read_special(root, "bos_token", spec, spec.bos));
  LEVADA_RETURN_IF_ERROR(read_special(root, "eos_token", spec, spec.eos));
  LEVADA_RETURN_IF_ERROR(apply_switch(root, "add_bos_token", spec.bos, spec.prefix));
  LEVADA_RETURN_IF_ERROR(apply_switch(root, "add_eos_token", spec.eos, spec.suffix));
  return read_chat_template(root, spec);
}

}  // namespace

Status read_tokenizer_config(const std::filesystem::path& folder, TokenizerSpec& spec) {
  std::error_code ignored;
  const auto config = folder / "tokenizer_config.json";
  if (std::filesystem::exists(config, ignored)) {
    LEVADA_ASSIGN_OR_RETURN(const std::string content, read_small_file(config, kMaxConfigBytes));
    simdjson::dom::parser parser;
    JsonElement root;
    if (const auto error = parser.parse(simdjson::padded_string(content)).get(root); error != simdjson::SUCCESS) {
      return data_loss(config.string() + ": " + simdjson::error_message(error));
    }
    const Status status = read_config_root(root, spec);
    if (!status.ok()) return Status(status.code(), config.string() + ": " + status.message());
  }
  const auto jinja = folder / "chat_template.jinja";  // newer folders keep the template here; it wins
  if (std::filesystem::exists(jinja, ignored)) {
    LEVADA_ASSIGN_OR_RETURN(spec.chat_template, read_small_file(jinja, kMaxTemplateBytes));
  }
  return {};
}

}  // namespace levada::text
