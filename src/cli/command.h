// What: the subcommands of `levada` and what they share: exit codes and how a failure is told.
// Owner: none.
// Thread: main.
// Invariant: exit 0 success, 1 a failure at run time, 2 the user's input (flags, recipe, model files, port, memory), 128 + a
// signal that ended `up`.
// Each command prints answers on stdout and everything else on stderr.
#pragma once

#include <span>
#include <string>

#include "base/status.h"

namespace levada::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

using Words = std::span<const char* const>;  // what stands behind the command's name

int serve_command(Words words);
int up_command(Words words);
int plan_command(Words words);
int produce_command(Words words);
int train_command(Words words);
int status_command(Words words);
int draft_command(Words words);
int flywheel_command(Words words);
int top_command(Words words);
int synthesize_command(Words words);
int bench_command(Words words);
int doctor_command(Words words);
int version_command(Words words);

// "levada: <status>" on one line; control characters are escaped.
std::string failure_line(const Status& status);
// Prints that line to stderr and returns the exit code for it.
int report(const Status& status);

// "0.1.0 (a1b2c3d)": version and commit the binary was built from.
const char* version();
const char* commit();

}  // namespace levada::cli
