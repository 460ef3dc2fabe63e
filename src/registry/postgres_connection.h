// What: SqlConnection on a PostgreSQL server, through libpq.
// Owner: SqlStorage.
// Thread: one at a time.
// Invariant: an advisory lock on the database is held while the connection lives, so there is one writer. A transaction's
// statements go out as one pipeline: a group of hundreds of rows costs one round trip.
// libpq rather than SOCI because of that pipeline: SOCI waits for the server once per statement.
#pragma once

#include <memory>
#include <string>

#include "registry/sql_connection.h"

namespace levada::registry {

// kUnavailable if the server cannot be reached or another registry holds the lock.
Result<std::unique_ptr<SqlConnection>> open_postgres(const std::string& conninfo);

}  // namespace levada::registry
