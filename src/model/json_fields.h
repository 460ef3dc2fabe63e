// What: JsonFields, typed access to one JSON object of a checkpoint that remembers the first thing that was wrong.
// Owner: borrows the object; the reader must not outlive it.
// Thread: start-up only.
// Invariant: messages read "FILE: FIELD: what"; null counts as absent; after a failure every look-up still answers something harmless, so that a whole
// configuration is read first and status() asked once.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/status.h"

namespace levada::model {

class JsonFields {
 public:
  // `path` stands before every key in messages: "rope_scaling.".
  JsonFields(const nlohmann::json& object, std::string file, std::string path = {})
      : object_(object), file_(std::move(file)), path_(std::move(path)) {}

  bool has(const char* key) const;
  // Without a fallback the key must be there. The number must be whole.
  std::int64_t integer(const char* key, std::optional<std::int64_t> fallback = {});
  double number(const char* key, std::optional<double> fallback = {});
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, std::optional<std::string> fallback = {});
  // nullptr when absent.
  const nlohmann::json* object(const char* key);
  // kInvalidArgument for a feature we don't have.
  void refuse(const char* key, const std::string& why);
  const Status& status() const { return status_; }

 private:
  const nlohmann::json* find(const char* key) const;
  void expected(const char* key, const char* what);
  const nlohmann::json& object_;
  std::string file_, path_;
  Status status_;
};

// A JSON object from a file of at most 16 MiB. kNotFound, or kDataLoss when it isn't one.
Result<nlohmann::json> read_json_object(const std::string& file);

}  // namespace levada::model
