// What: every option of `levada serve`, room by room.
// Owner: the command that parses them; a recipe of `levada up` may carry the same sections.
// Thread: start-up only.
// Invariant: defaults stand in the rooms' own options; none is written here but the log level.
#pragma once

#include <string>

#include "capture/options.h"
#include "engine/options.h"
#include "sched/options.h"
#include "serve/options.h"
#include "store/options.h"

namespace levada::cli {

struct ServerOptions {
  std::string log_level = "info";
  std::string compat = "none";
  engine::Options engine;
  sched::Options sched;
  serve::Options serve;
  capture::Options capture;
  store::Options store;
};

void describe(OptionTable& table, ServerOptions& options);

}  // namespace levada::cli
