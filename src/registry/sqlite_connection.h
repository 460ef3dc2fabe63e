// What: SqlConnection on one SQLite file: WAL, synchronous=FULL, one writer.
// Owner: SqlStorage.
// Thread: one at a time.
// Invariant: "{path}.lock" is held while the connection lives, so a second registry on the same file is refused at once.
// Opening checks the whole file (quick_check).
#pragma once

#include <memory>
#include <string>

#include "registry/sql_connection.h"

namespace levada::registry {

// kUnavailable if the file cannot be opened or another process holds the lock; kDataLoss if it is damaged.
Result<std::unique_ptr<SqlConnection>> open_sqlite(const std::string& path);

}  // namespace levada::registry
