#include "engine_log.h"

#include <stdexcept>

#include "support/logging.h"

namespace levada::grammar {

thread_local EngineWarnings* EngineWarnings::active_ = nullptr;

EngineWarnings::EngineWarnings() { active_ = this; }
EngineWarnings::~EngineWarnings() { active_ = nullptr; }

void EngineWarnings::add(const std::string& message) {
  constexpr std::size_t kMost = 8;
  if (active_ != nullptr && active_->all_.size() < kMost) active_->all_.push_back(message);
}

}  // namespace levada::grammar

namespace xgrammar {

void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);  // LogFatalError's text begins with paths of the build
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level == XGRAMMAR_LOG_LEVEL_WARNING) levada::grammar::EngineWarnings::add(message);
}

}  // namespace xgrammar
