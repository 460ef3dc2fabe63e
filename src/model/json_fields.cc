#include "model/json_fields.h"

#include <cmath>
#include <filesystem>
#include <fstream>

namespace levada::model {

const nlohmann::json* JsonFields::find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void JsonFields::expected(const char* key, const char* what) {
  if (!status_.ok()) return;
  const nlohmann::json* found = find(key);
  const std::string given = found == nullptr ? "it is missing" : "it is " + found->dump().substr(0, 60);
  status_ = invalid_argument(file_ + ": " + path_ + key + ": must be " + what + ", " + given);
}

void JsonFields::refuse(const char* key, const std::string& why) {
  if (status_.ok()) status_ = invalid_argument(file_ + ": " + path_ + key + ": " + why);
}

bool JsonFields::has(const char* key) const { return find(key) != nullptr; }

std::int64_t JsonFields::integer(const char* key, std::optional<std::int64_t> fallback) {
  const nlohmann::json* found = find(key);
  if (found == nullptr && fallback) return *fallback;
  if (found != nullptr && found->is_number_integer() && (!found->is_number_unsigned() || *found <= INT64_MAX)) {
    return found->get<std::int64_t>();
  }
  expected(key, "a whole number");
  return 1;
}

double JsonFields::number(const char* key, std::optional<double> fallback) {
  const nlohmann::json* found = find(key);
  if (found == nullptr && fallback) return *fallback;
  if (found != nullptr && found->is_number()) return found->get<double>();
  expected(key, "a number");
  return 1;
}

bool JsonFields::boolean(const char* key, bool fallback) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return fallback;
  if (found->is_boolean()) return found->get<bool>();
  expected(key, "true or false");
  return fallback;
}

std::string JsonFields::text(const char* key, std::optional<std::string> fallback) {
  const nlohmann::json* found = find(key);
  if (found == nullptr && fallback) return *fallback;
  if (found != nullptr && found->is_string()) return found->get<std::string>();
  expected(key, "a string");
  return {};
}

const nlohmann::json* JsonFields::object(const char* key) {
  const nlohmann::json* found = find(key);
  if (found != nullptr && !found->is_object()) {
    expected(key, "an object");
    return nullptr;
  }
  return found;
}

Result<nlohmann::json> read_json_object(const std::string& file) {
  constexpr std::uintmax_t kMaxBytes = 16 << 20;
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  if (error) return not_found(file + ": " + error.message());
  if (bytes > kMaxBytes) return data_loss(file + ": " + std::to_string(bytes) + " bytes, at most 16 MiB are read");
  std::ifstream in(file, std::ios::binary);
  nlohmann::json parsed = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return data_loss(file + ": not a JSON object");
  return parsed;
}

}  // namespace levada::model
