#include "producer/prompt_file.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace levada::producer {
namespace {

using Json = nlohmann::json;

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 30;
constexpr std::size_t kMaxTaskId = 128;

Status bad(const std::string& where, const std::string& field, const std::string& what) {
  return invalid_argument(where + ": " + what, field);
}

const Json* member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Status check_task_id(const std::string& where, const std::string& field, const std::string& id) {
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == ':' || c == '-';
  };
  if (id.empty() || id.size() > kMaxTaskId || !std::all_of(id.begin(), id.end(), allowed)) {
    return bad(where, field, "must be 1 to 128 of A-Z a-z 0-9 . _ : -");
  }
  return {};
}

Status read_task_id(const Json& object, Prompt& prompt) {
  for (const char* field : {"task_id", "id"}) {
    const Json* value = member(object, field);
    if (value == nullptr) continue;
    if (!value->is_string()) return bad(prompt.where, field, "must be a string");
    const auto& id = value->get_ref<const std::string&>();
    LEVADA_RETURN_IF_ERROR(check_task_id(prompt.where, field, id));
    if (!prompt.task_id.empty() && prompt.task_id != id) {
      return bad(prompt.where, field, "differs from task_id; give one of them");
    }
    prompt.task_id = id;
  }
  return {};
}

template <class Number>
Status read_numbers(const Json& value, const std::string& where, const char* field, std::int64_t most,
                    std::vector<Number>& out) {
  if (!value.is_array()) return bad(where, field, "must be a list of whole numbers");
  out.reserve(value.size());
  for (const Json& item : value) {
    if (!item.is_number_integer() || (item.is_number_unsigned() && item.get<std::uint64_t>() > std::uint64_t(most)) ||
        item.get<std::int64_t>() < 0 || item.get<std::int64_t>() > most) {
      return bad(where, std::string(field) + "[" + std::to_string(out.size()) + "]",
                 "must be a whole number from 0 to " + std::to_string(most));
    }
    out.push_back(static_cast<Number>(item.get<std::int64_t>()));
  }
  return {};
}

Status read_tokens(const Json* ids, const Json* mask, Prompt& prompt) {
  if (ids == nullptr) return bad(prompt.where, "input_ids", "is missing: loss_mask needs it");
  if (mask == nullptr) return bad(prompt.where, "loss_mask", "is missing: input_ids needs it");
  LEVADA_RETURN_IF_ERROR(read_numbers(*ids, prompt.where, "input_ids", INT32_MAX, prompt.input_ids));
  LEVADA_RETURN_IF_ERROR(read_numbers(*mask, prompt.where, "loss_mask", 1, prompt.loss_mask));
  if (prompt.input_ids.empty()) return bad(prompt.where, "input_ids", "must not be empty");
  if (prompt.input_ids.size() != prompt.loss_mask.size()) {
    return bad(prompt.where, "loss_mask",
               "has " + std::to_string(prompt.loss_mask.size()) + " entries for " +
                   std::to_string(prompt.input_ids.size()) + " input_ids");
  }
  prompt.kind = PromptKind::kTokens;
  return {};
}

// The target answers for itself: an assistant's last words in the file are no training data.
Status read_messages(const Json& list, const char* field, Prompt& prompt) {
  if (!list.is_array()) return bad(prompt.where, field, "must be a list of messages");
  Json messages = Json::array();
  for (const Json& message : list) {
    const std::string at = std::string(field) + "[" + std::to_string(messages.size()) + "]";
    if (!message.is_object()) return bad(prompt.where, at, "must be an object with role and content");
    const Json* role = member(message, "role");
    const Json* content = member(message, "content");
    if (role == nullptr || !role->is_string()) return bad(prompt.where, at + ".role", "must be a string");
    if (content == nullptr || !content->is_string()) return bad(prompt.where, at + ".content", "must be a string");
    messages.push_back({{"role", *role}, {"content", *content}});
  }
  while (!messages.empty() && messages.back()["role"] == "assistant") messages.erase(messages.size() - 1);
  if (messages.empty()) return bad(prompt.where, field, "has no message that could be answered");
  prompt.kind = PromptKind::kMessages;
  prompt.messages = messages.dump();
  return {};
}

Status read_text(const Json& value, const char* field, bool as_message, Prompt& prompt) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    return bad(prompt.where, field, "must be a string that is not empty");
  }
  if (as_message) {
    const Json message{{"role", "user"}, {"content", value}};
    return read_messages(Json::array({message}), field, prompt);
  }
  prompt.kind = PromptKind::kText;
  prompt.text = value.get<std::string>();
  return {};
}

Result<Prompt> read_prompt(const Json& object, const std::string& where) {
  Prompt prompt;
  prompt.where = where;
  if (!object.is_object()) return bad(where, "", "must be a JSON object");
  LEVADA_RETURN_IF_ERROR(read_task_id(object, prompt));
  const Json* ids = member(object, "input_ids");
  const Json* mask = member(object, "loss_mask");
  const char* kind = nullptr;
  for (const char* field : {"text", "prompt", "messages", "conversations"}) {
    if (member(object, field) == nullptr) continue;
    if (kind != nullptr) return bad(where, field, std::string("stands beside ") + kind + "; give one of them");
    kind = field;
  }
  if (ids != nullptr || mask != nullptr) {
    if (kind != nullptr) return bad(where, kind, "stands beside input_ids or loss_mask; give one of them");
    LEVADA_RETURN_IF_ERROR(read_tokens(ids, mask, prompt));
    return prompt;
  }
  if (kind == nullptr)
    return bad(where, "prompt", "is missing; give prompt, text, messages or input_ids and loss_mask");
  const Json& value = *member(object, kind);
  const std::string_view name(kind);
  const Status status = name == "text" || name == "prompt" ? read_text(value, kind, name == "prompt", prompt)
                                                           : read_messages(value, kind, prompt);
  LEVADA_RETURN_IF_ERROR(status);
  return prompt;
}

Result<std::vector<Prompt>> read_list(const std::string& text) {
  const Json list = Json::parse(text, nullptr, false);
  if (list.is_discarded()) return invalid_argument("is not valid JSON");
  std::vector<Prompt> prompts;
  for (const Json& item : list) {
    LEVADA_ASSIGN_OR_RETURN(Prompt prompt, read_prompt(item, "item " + std::to_string(prompts.size() + 1)));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Result<std::vector<Prompt>> read_lines(const std::string& text) {
  std::vector<Prompt> prompts;
  std::istringstream lines(text);
  std::string line;
  for (std::int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = "line " + std::to_string(number);
    const Json object = Json::parse(line, nullptr, false);
    if (object.is_discarded()) return invalid_argument(where + ": is not valid JSON");
    LEVADA_ASSIGN_OR_RETURN(Prompt prompt, read_prompt(object, where));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

Result<std::vector<Prompt>> parse_prompts(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return invalid_argument("holds no prompts");
  LEVADA_ASSIGN_OR_RETURN(std::vector<Prompt> prompts, text[first] == '[' ? read_list(text) : read_lines(text));
  if (prompts.empty()) return invalid_argument("holds no prompts");
  std::map<std::string, std::string> owner;
  for (const Prompt& prompt : prompts) {
    if (prompt.task_id.empty()) continue;
    const auto [first_use, is_new] = owner.emplace(prompt.task_id, prompt.where);
    if (!is_new) return bad(prompt.where, "task_id", prompt.task_id + " is that of " + first_use->second + " already");
  }
  return prompts;
}

Status check_tokens(const std::vector<Prompt>& prompts, std::int64_t vocabulary) {
  for (const Prompt& prompt : prompts) {
    const auto outside = std::find_if(prompt.input_ids.begin(), prompt.input_ids.end(),
                                      [&](std::int32_t token) { return token >= vocabulary; });
    if (outside == prompt.input_ids.end()) continue;
    return bad(
        prompt.where, "input_ids[" + std::to_string(outside - prompt.input_ids.begin()) + "]",
        "token " + std::to_string(*outside) + " is outside the target's vocabulary of " + std::to_string(vocabulary));
  }
  return {};
}

Result<std::vector<Prompt>> read_prompts(const std::filesystem::path& file, std::int64_t vocabulary) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  if (error) return not_found("prompts file " + file.string() + ": " + error.message());
  if (bytes > kMaxFileBytes) return payload_too_large("prompts file " + file.string() + " has more than 1 GiB");
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  if (!stream) return unavailable("prompts file " + file.string() + " can't be read");
  auto prompts = parse_prompts(content.str());
  const Status status = prompts.ok() && vocabulary > 0 ? check_tokens(*prompts, vocabulary) : prompts.status();
  if (status.ok()) return prompts;
  return Status(status.code(), file.string() + ": " + status.message(), status.field());
}

}  // namespace levada::producer
