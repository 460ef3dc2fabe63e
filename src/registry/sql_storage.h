// What: SqlStorage, the registry's tables in an SQL database. Tables, upserts and reads are generated from the rows' field
// lists; SQLite and PostgreSQL run the same text.
// Owner: the Registry.
// Thread: the Registry's.
// Invariant: see Storage. The schema is what docs/formats/registry.md shows.
// Durability: SQLite in WAL mode with synchronous=FULL; PostgreSQL with synchronous_commit=on.
#pragma once

#include <memory>
#include <string>

#include "registry/ref_json.h"
#include "registry/sql_connection.h"
#include "registry/storage.h"

namespace levada::registry {

// Creates what is missing. kUnavailable if another registry has the database; kDataLoss if it is damaged.
Result<std::unique_ptr<Storage>> open_sqlite_storage(const std::string& path, const RefContext& context);
// `conninfo` as libpq takes it: "host=/run/postgresql dbname=levada".
Result<std::unique_ptr<Storage>> open_postgres_storage(const std::string& conninfo, const RefContext& context);

}  // namespace levada::registry
