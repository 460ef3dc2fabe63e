// What: Storage, where the registry's rows outlive the process: load once, then commit changes.
// Owner: the Registry.
// Thread: the Registry's.
// Invariant: commit() is all or nothing, and durable when it answers ok: a power cut cannot undo it. One writer per
// database, for as long as the Storage lives.
// Implementations: open_sqlite_storage, open_postgres_storage, over the same SQL (registry/sql_storage.h).
#pragma once

#include "base/status.h"
#include "fanout/rows.h"

namespace levada::registry {

class Storage {
 public:
  virtual ~Storage() = default;
  // Every row; `run` unset for a new database.
  virtual Result<fanout::Rows> load() = 0;
  // A failure may leave the database with or without the changes: load() tells.
  virtual Status commit(const fanout::Changes& changes) = 0;
};

}  // namespace levada::registry
