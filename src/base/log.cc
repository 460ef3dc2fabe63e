#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace levada {
namespace {

constexpr std::string_view kLevelNames[] = {"debug", "info", "warning", "error", "off"};

// Never destroyed: threads may still log while the process ends.
spdlog::logger& sink() {
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("levada", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ [%t] %v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: break;
  }
  return spdlog::level::off;
}

std::string escaped(std::string_view message) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string line;
  line.reserve(message.size());
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      line += "\\n";
    else if (byte >= 0x20 && byte != 0x7f)
      line += c;
    else
      line += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
  }
  return line;
}

}  // namespace

namespace log_detail {
std::atomic<LogLevel> level{LogLevel::kInfo};
}  // namespace log_detail

void set_log_level(LogLevel level) { log_detail::level.store(level, std::memory_order_relaxed); }

Result<LogLevel> parse_log_level(std::string_view name) {
  for (int i = 0; i < 5; ++i)
    if (kLevelNames[i] == name) return static_cast<LogLevel>(i);
  return invalid_argument("log level must be one of debug, info, warning, error, off, got \"" + std::string(name) +
                          "\"");
}

void write_log(LogLevel level, std::string_view message) { sink().log(to_spdlog(level), escaped(message)); }

}  // namespace levada
