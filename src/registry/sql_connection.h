// What: SqlConnection, the little that the registry needs of a database: text queries, and prepared statements run in one
// transaction.
// Owner: SqlStorage.
// Thread: one at a time.
// Invariant: all parameters and results are whole numbers or text; parameters are written $1, $2 … in SQL. After a failure
// of anything within a transaction, rollback() leaves the connection usable if the database is.
// Implementations: registry/sqlite_connection.h, registry/postgres_connection.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace levada::registry {

using SqlValue = std::variant<std::int64_t, std::string>;
using SqlRow = std::vector<std::string>;  // every column as text

class SqlConnection {
 public:
  virtual ~SqlConnection() = default;
  virtual Status execute(const std::string& sql) = 0;
  virtual Result<std::vector<SqlRow>> query(const std::string& sql) = 0;
  // Numbers from 0, in the order of preparation.
  virtual Result<std::size_t> prepare(const std::string& sql, std::size_t parameters) = 0;
  virtual Status begin() = 0;
  // May answer ok before the database did: then commit() tells.
  virtual Status run(std::size_t statement, const std::vector<SqlValue>& parameters) = 0;
  virtual Status commit() = 0;
  virtual void rollback() = 0;
};

}  // namespace levada::registry
