#include "registry/sqlite_connection.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"

namespace levada::registry {

namespace {

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

class SqliteConnection final : public SqlConnection {
 public:
  SqliteConnection(std::string path, Fd lock, Database database)
      : path_(std::move(path)), lock_(std::move(lock)), database_(std::move(database)) {}

  Status execute(const std::string& sql) override {
    if (sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
    return failure();
  }

  Result<std::vector<SqlRow>> query(const std::string& sql) override {
    LEVADA_ASSIGN_OR_RETURN(const Statement statement, compile(sql));
    std::vector<SqlRow> rows;
    int code = sqlite3_step(statement.get());
    for (; code == SQLITE_ROW; code = sqlite3_step(statement.get())) {
      SqlRow row;
      for (int i = 0; i < sqlite3_column_count(statement.get()); ++i) {
        const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement.get(), i));
        const int bytes = sqlite3_column_bytes(statement.get(), i);
        row.push_back(text == nullptr ? std::string() : std::string(text, static_cast<std::size_t>(bytes)));
      }
      rows.push_back(std::move(row));
    }
    if (code != SQLITE_DONE) return failure();
    return rows;
  }

  Result<std::size_t> prepare(const std::string& sql, std::size_t) override {
    LEVADA_ASSIGN_OR_RETURN(Statement statement, compile(sql));
    statements_.push_back(std::move(statement));
    return statements_.size() - 1;
  }

  Status begin() override { return execute("BEGIN IMMEDIATE"); }

  Status run(std::size_t statement, const std::vector<SqlValue>& parameters) override {
    sqlite3_stmt* prepared = statements_[statement].get();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const int place = static_cast<int>(i) + 1;
      if (const auto* number = std::get_if<std::int64_t>(&parameters[i])) {
        sqlite3_bind_int64(prepared, place, *number);
      } else {
        // Bound for this step only: the parameters outlive it.
        const std::string& text = std::get<std::string>(parameters[i]);
        sqlite3_bind_text(prepared, place, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
      }
    }
    const int code = sqlite3_step(prepared);
    const Status status = code == SQLITE_DONE ? Status() : failure();
    sqlite3_reset(prepared);
    sqlite3_clear_bindings(prepared);
    return status;
  }

  Status commit() override { return execute("COMMIT"); }

  void rollback() override {
    // Some failures have rolled back already; then there is nothing to do, and SQLite says so.
    if (sqlite3_get_autocommit(database_.get()) == 0) (void)execute("ROLLBACK");
  }

  Status prepare_file() {
    sqlite3_busy_timeout(database_.get(), 30'000);
    LEVADA_ASSIGN_OR_RETURN(const auto health, query("PRAGMA quick_check"));
    if (health.empty() || health[0].empty() || health[0][0] != "ok") {
      return data_loss(path_ + " is damaged: " + (health.empty() ? std::string("no answer") : health[0][0]));
    }
    LEVADA_ASSIGN_OR_RETURN(const auto mode, query("PRAGMA journal_mode=WAL"));
    if (mode.empty() || mode[0][0] != "wal") return unavailable(path_ + " cannot be in WAL mode on this file system");
    return execute("PRAGMA synchronous=FULL");
  }

 private:
  Result<Statement> compile(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v3(database_.get(), sql.c_str(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) return failure();
    return Statement(statement);
  }

  Status failure() const {
    const int code = sqlite3_errcode(database_.get());
    const std::string text = path_ + ": " + sqlite3_errmsg(database_.get());
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) return data_loss(text);
    return unavailable(text);
  }

  std::string path_;
  Fd lock_;
  Database database_;
  std::vector<Statement> statements_;
};

}  // namespace

Result<std::unique_ptr<SqlConnection>> open_sqlite(const std::string& path) {
  const std::string lock_path = path + ".lock";
  Fd lock(::open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock.valid()) return unavailable("cannot open " + lock_path + ": " + std::strerror(errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return unavailable(path + " is in use by another registry (" + lock_path + " is held)");
  }
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(raw);
  if (code != SQLITE_OK) return unavailable("cannot open " + path + ": " + sqlite3_errstr(code));
  auto connection = std::make_unique<SqliteConnection>(path, std::move(lock), std::move(database));
  LEVADA_RETURN_IF_ERROR(connection->prepare_file());
  return std::unique_ptr<SqlConnection>(std::move(connection));
}

}  // namespace levada::registry
