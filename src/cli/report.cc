#include <cstdio>

#include "cli/command.h"
#include "cli/version.h"

namespace levada::cli {

int report(const Status& status) {
  std::fprintf(stderr, "levada: %s%s%s\n", status.field().empty() ? "" : status.field().c_str(),
               status.field().empty() ? "" : ": ", status.message().c_str());
  return status.code() == StatusCode::kInternal ? kExitFailure : kExitUsage;
}

const char* version() { return LEVADA_VERSION; }
const char* commit() { return LEVADA_COMMIT; }

int version_command(Words) {
  std::printf("levada %s (%s)\n", version(), commit());
  return kExitOk;
}

}  // namespace levada::cli
