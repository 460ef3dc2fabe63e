#include "cli/server_options.h"

namespace levada::cli {

void describe(OptionTable& table, ServerOptions& options) {
  engine::describe(table, options.engine);
  sched::describe(table, options.sched);
  serve::describe(table, options.serve);
  capture::describe(table, options.capture);
  store::describe(table, options.store);
  table.begin_room("cli");
  table.add("log_level", &options.log_level, "least severe message to print")
      .choices({"debug", "info", "warning", "error", "off"});
  table.add("compat", &options.compat, "sglang: a command line written for SGLang; flags unknown here have no effect")
      .choices({"none", "sglang"});
}

}  // namespace levada::cli
