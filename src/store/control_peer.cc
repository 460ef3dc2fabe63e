#include "store/control_peer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/hex.h"
#include "base/secret.h"

namespace levada::store {
namespace {

using Json = nlohmann::ordered_json;

// Lines are flat: what lies deeper than a hello's fields is not kept, so that a line of brackets costs no memory.
constexpr int kDeepest = 3;

Json parse(std::string_view line) {
  return Json::parse(
      line, [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepest; },
      /*allow_exceptions=*/false);
}

bool is_list_of_keys(const Json& line) {
  return line.is_array() && std::all_of(line.begin(), line.end(), [](const Json& key) { return key.is_string(); });
}

// False unless absent, a number, or 16 hexadecimal digits.
bool read_incarnation(const Json& hello, std::uint64_t& incarnation) {
  const auto field = hello.find("incarnation");
  if (field == hello.end() || field->is_null()) return true;
  if (field->is_number_unsigned()) {
    incarnation = field->get<std::uint64_t>();
    return true;
  }
  const Result<std::uint64_t> parsed =
      field->is_string() ? parse_hex64(field->get_ref<const std::string&>()) : invalid_argument("not a number");
  if (parsed.ok()) incarnation = *parsed;
  return parsed.ok();
}

struct Hello {
  std::string token, run;
  std::uint64_t incarnation = kAnyIncarnation;
};

std::optional<Hello> read_hello(const Json& line) {
  const auto hello = line.find("hello");
  if (hello == line.end() || !hello->is_object()) return std::nullopt;
  Hello read;
  for (const auto& [name, to] : {std::pair("token", &read.token), {"run", &read.run}}) {
    const auto field = hello->find(name);
    if (field == hello->end()) continue;
    if (!field->is_string()) return std::nullopt;
    *to = field->get<std::string>();
  }
  if (!read_incarnation(*hello, read.incarnation)) return std::nullopt;
  return read;
}

}  // namespace

bool ControlPeer::take(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (partial_.size() + part.size() > terms_.max_line_bytes) {
      stats_.bad_lines.fetch_add(1);
      return false;
    }
    if (end == bytes.npos) {
      partial_ += part;
      return true;
    }
    const bool good = partial_.empty() ? take_line(part) : take_line(partial_ += part);
    partial_.clear();
    ++lines_;
    if (!good) return false;
    bytes.remove_prefix(end + 1);
  }
  return true;
}

// Keys of another life of the arena name nothing here, even if there is an object of that name.
void ControlPeer::free(const std::vector<std::string>& keys) {
  const bool of_another_life = incarnation_ != kAnyIncarnation && incarnation_ != arena_.incarnation();
  Json freed = Json::array(), unknown = Json::array(), still_read = Json::array();
  for (const std::string& key : keys) {
    const RemoveOutcome outcome = of_another_life ? RemoveOutcome::kAbsent : arena_.remove(key);
    (outcome == RemoveOutcome::kFreed    ? freed
     : outcome == RemoveOutcome::kAbsent ? unknown
                                         : still_read)
        .push_back(key);
  }
  stats_.lines.fetch_add(1);
  stats_.freed.fetch_add(freed.size());
  if (!greeted_) return;
  Json answer = {{"freed", std::move(freed)}, {"unknown", std::move(unknown)}};
  if (!still_read.empty()) answer["still_read"] = std::move(still_read);
  if (of_another_life) answer["incarnation"] = hex64(arena_.incarnation());
  answers_ += answer.dump() + '\n';
}

bool ControlPeer::take_line(std::string_view text) {
  if (text.find_first_not_of(" \t\r") == text.npos) return true;
  const bool first = std::exchange(first_line_, false);
  const Json line = parse(text);
  if (is_list_of_keys(line)) {
    if (!greeted_ && !terms_.token.empty() && !terms_.plain) {
      stats_.bad_tokens.fetch_add(1);
      return false;
    }
    free(line.get<std::vector<std::string>>());
    return true;
  }
  const std::optional<Hello> hello = first && line.is_object() ? read_hello(line) : std::nullopt;
  if (!hello) {
    stats_.bad_lines.fetch_add(1);
    return false;
  }
  if (!terms_.token.empty() && !equal_in_constant_time(hello->token, terms_.token)) {
    stats_.bad_tokens.fetch_add(1);
    return false;
  }
  greeted_ = true;
  run_ = hello->run;
  incarnation_ = hello->incarnation;
  return true;
}

}  // namespace levada::store
