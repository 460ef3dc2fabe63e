// What: LEVADA_LOG_INFO("loaded ", n, " tensors") and its siblings: one line to stderr with time, level and thread.
// Owner: one process-wide sink and level; main() sets the level once at start.
// Thread: any.
// Invariant: a message below the level costs one relaxed load and evaluates none of its arguments.
// Control characters are escaped, so text from outside cannot forge a line or drive a terminal.
#pragma once

#include <atomic>
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

#include "base/status.h"

namespace levada {

enum class LogLevel : int { kDebug, kInfo, kWarning, kError, kOff };

void set_log_level(LogLevel level);
// "debug", "info", "warning", "error" or "off"; kInvalidArgument otherwise.
Result<LogLevel> parse_log_level(std::string_view name);
// The line is written before the call returns.
void write_log(LogLevel level, std::string_view message);

namespace log_detail {
extern std::atomic<LogLevel> level;

inline void append(std::string& line, std::string_view text) { line += text; }
inline void append(std::string& line, char letter) { line += letter; }
// Constrained, else a string literal would rather become a bool than a string_view.
template <std::same_as<bool> Flag>
void append(std::string& line, Flag flag) {
  line += flag ? "true" : "false";
}
inline void append(std::string& line, const Status& status) { line += status.to_string(); }
template <class Number>
requires(std::integral<Number> && !std::same_as<Number, bool>) || std::floating_point<Number> void append(
                                                                      std::string& line, Number number) {
  char buffer[64];
  line.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
}

template <class... Parts>
std::string join(const Parts&... parts) {
  std::string line;
  (append(line, parts), ...);
  return line;
}
}  // namespace log_detail

inline bool log_enabled(LogLevel level) { return level >= log_detail::level.load(std::memory_order_relaxed); }

}  // namespace levada

#define LEVADA_LOG(level, ...) \
  (::levada::log_enabled(level) ? ::levada::write_log(level, ::levada::log_detail::join(__VA_ARGS__)) : void(0))
#define LEVADA_LOG_DEBUG(...) LEVADA_LOG(::levada::LogLevel::kDebug, __VA_ARGS__)
#define LEVADA_LOG_INFO(...) LEVADA_LOG(::levada::LogLevel::kInfo, __VA_ARGS__)
#define LEVADA_LOG_WARNING(...) LEVADA_LOG(::levada::LogLevel::kWarning, __VA_ARGS__)
#define LEVADA_LOG_ERROR(...) LEVADA_LOG(::levada::LogLevel::kError, __VA_ARGS__)
