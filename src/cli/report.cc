#include <cstdio>

#include "cli/command.h"
#include "cli/version.h"

namespace levada::cli {

std::string failure_line(const Status& status) {
  std::string line = "levada: ";
  if (!status.field().empty()) line += status.field() + ": ";
  // Messages quote files and arguments: whatever stands in those, the sentence stays whole and on its line.
  for (const char c : status.message()) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte != 0x7F) {
      line += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      line += escaped;
    }
  }
  return line + "\n";
}

int report(const Status& status) {
  std::fputs(failure_line(status).c_str(), stderr);
  return status.code() == StatusCode::kInternal ? kExitFailure : kExitUsage;
}

const char* version() { return LEVADA_VERSION; }
const char* commit() { return LEVADA_COMMIT; }

int version_command(Words) {
  std::printf("levada %s (%s)\n", version(), commit());
  return kExitOk;
}

}  // namespace levada::cli
