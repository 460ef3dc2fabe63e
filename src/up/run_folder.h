// What: RunFolder, the control folder of a run as the launcher sees it: its lock, its status file, what it holds.
// Owner: `levada up` holds one for the length of the run.
// Thread: main.
// Invariant: one launcher per folder; a folder that is neither empty nor a run's own is never touched.
// Format: up.json (docs/recipes.md), written whole or not at all.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "up/run_state.h"

namespace levada::up {

class RunFolder {
 public:
  // Makes the folder if it is not there. kFailedPrecondition naming the folder if another launcher holds it or if it
  // holds other files.
  static Result<RunFolder> open(const std::filesystem::path& folder);
  RunFolder(RunFolder&&) = default;
  ~RunFolder();

  // What the last launcher wrote, if any did.
  const std::optional<StatusFile>& earlier() const { return earlier_; }
  Status write_status(const RunState& state) const;
  // Deletes everything but the lock.
  Status clear() const;

 private:
  RunFolder(std::filesystem::path folder, Fd lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}

  std::filesystem::path folder_;
  Fd lock_;
  std::optional<StatusFile> earlier_;
};

// The status file of a control folder. kNotFound if there is none.
Result<StatusFile> read_status(const std::filesystem::path& folder);
// Whether a launcher holds it now.
bool is_held(const std::filesystem::path& folder);

// kUnavailable naming host, port and remedy if nobody could listen there; the port, or a free one for 0.
Result<std::int64_t> bindable_port(const std::string& host, std::int64_t port);

}  // namespace levada::up
