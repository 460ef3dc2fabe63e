#include "registry/postgres_connection.h"

#include <libpq-fe.h>

namespace levada::registry {

namespace {

// Statements on their way before their answers are read: few enough that neither side's socket buffer can fill up while
// both only write.
constexpr std::size_t kInFlight = 64;
// The key of the advisory lock; any constant of our own.
constexpr const char* kLock = "SELECT pg_advisory_lock(7813526140021)";
// The server ends a session a moment after its client closed it: who comes right after waits for that.
constexpr const char* kWaitForLock = "SET lock_timeout = '3s'";
constexpr const char* kWaitForEver = "SET lock_timeout = 0";
constexpr std::string_view kLockNotAvailable = "55P03";

struct Finish {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};
struct Clear {
  void operator()(PGresult* result) const { PQclear(result); }
};
using PgConnection = std::unique_ptr<PGconn, Finish>;
using PgResult = std::unique_ptr<PGresult, Clear>;

class PostgresConnection final : public SqlConnection {
 public:
  explicit PostgresConnection(std::string conninfo) : conninfo_(std::move(conninfo)) {}

  Status connect() {
    connection_.reset(PQconnectdb(conninfo_.c_str()));
    if (PQstatus(connection_.get()) != CONNECTION_OK) return failure();
    LEVADA_RETURN_IF_ERROR(execute("SET synchronous_commit = on"));
    LEVADA_RETURN_IF_ERROR(execute("SET client_min_messages = warning"));
    LEVADA_RETURN_IF_ERROR(take_lock());
    for (std::size_t i = 0; i < statements_.size(); ++i) LEVADA_RETURN_IF_ERROR(prepare_again(i));
    return {};
  }

  Status take_lock() {
    LEVADA_RETURN_IF_ERROR(execute(kWaitForLock));
    const PgResult result(PQexec(connection_.get(), kLock));
    if (PQresultStatus(result.get()) != PGRES_TUPLES_OK) {
      const char* state = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
      if (state == nullptr || state != kLockNotAvailable) return failure();
      return unavailable("the database is in use by another registry");
    }
    return execute(kWaitForEver);
  }

  Status execute(const std::string& sql) override {
    const PgResult result(PQexec(connection_.get(), sql.c_str()));
    const ExecStatusType status = PQresultStatus(result.get());
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return {};
    return failure();
  }

  Result<std::vector<SqlRow>> query(const std::string& sql) override {
    if (PQstatus(connection_.get()) != CONNECTION_OK) LEVADA_RETURN_IF_ERROR(connect());
    const PgResult result(PQexec(connection_.get(), sql.c_str()));
    if (PQresultStatus(result.get()) != PGRES_TUPLES_OK) return failure();
    std::vector<SqlRow> rows;
    for (int r = 0; r < PQntuples(result.get()); ++r) {
      SqlRow row;
      for (int c = 0; c < PQnfields(result.get()); ++c) {
        row.emplace_back(PQgetvalue(result.get(), r, c), static_cast<std::size_t>(PQgetlength(result.get(), r, c)));
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  Result<std::size_t> prepare(const std::string& sql, std::size_t parameters) override {
    statements_.push_back({sql, static_cast<int>(parameters)});
    LEVADA_RETURN_IF_ERROR(prepare_again(statements_.size() - 1));
    return statements_.size() - 1;
  }

  Status begin() override {
    if (PQstatus(connection_.get()) != CONNECTION_OK) LEVADA_RETURN_IF_ERROR(connect());
    if (PQenterPipelineMode(connection_.get()) != 1) return failure();
    in_flight_ = 0;
    return send_text("BEGIN");
  }

  Status run(std::size_t statement, const std::vector<SqlValue>& parameters) override {
    std::vector<std::string> numbers(parameters.size());
    std::vector<const char*> values;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (const auto* number = std::get_if<std::int64_t>(&parameters[i])) {
        numbers[i] = std::to_string(*number);
        values.push_back(numbers[i].c_str());
      } else {
        values.push_back(std::get<std::string>(parameters[i]).c_str());
      }
    }
    if (PQsendQueryPrepared(connection_.get(), name_of(statement).c_str(), static_cast<int>(values.size()),
                            values.data(), nullptr, nullptr, 0) != 1) {
      return failure();
    }
    return sent();
  }

  Status commit() override {
    LEVADA_RETURN_IF_ERROR(send_text("COMMIT"));
    if (PQpipelineSync(connection_.get()) != 1) return failure();
    const Status status = receive(in_flight_);
    LEVADA_RETURN_IF_ERROR(end_pipeline());
    return status;
  }

  void rollback() override {
    if (PQstatus(connection_.get()) == CONNECTION_OK && PQpipelineStatus(connection_.get()) != PQ_PIPELINE_OFF) {
      if (PQpipelineSync(connection_.get()) == 1) (void)end_pipeline();
    }
    if (PQstatus(connection_.get()) != CONNECTION_OK || PQpipelineStatus(connection_.get()) != PQ_PIPELINE_OFF) {
      connection_.reset();  // the next begin() or query() connects anew
      return;
    }
    if (PQtransactionStatus(connection_.get()) != PQTRANS_IDLE) (void)execute("ROLLBACK");
  }

 private:
  struct Prepared {
    std::string sql;
    int parameters;
  };

  static std::string name_of(std::size_t statement) { return "s" + std::to_string(statement); }

  Status prepare_again(std::size_t statement) {
    const Prepared& prepared = statements_[statement];
    const PgResult result(
        PQprepare(connection_.get(), name_of(statement).c_str(), prepared.sql.c_str(), prepared.parameters, nullptr));
    if (PQresultStatus(result.get()) != PGRES_COMMAND_OK) return failure();
    return {};
  }

  Status send_text(const char* sql) {
    if (PQsendQueryParams(connection_.get(), sql, 0, nullptr, nullptr, nullptr, nullptr, 0) != 1) return failure();
    return sent();
  }

  Status sent() {
    in_flight_ += 1;
    if (in_flight_ < kInFlight) return {};
    if (PQsendFlushRequest(connection_.get()) != 1) return failure();
    return receive(in_flight_);
  }

  // The answers of the next `count` statements: each a result, then a null.
  Status receive(std::size_t count) {
    Status first;
    for (std::size_t i = 0; i < count; ++i) {
      while (const PgResult result{PQgetResult(connection_.get())}) {
        const ExecStatusType status = PQresultStatus(result.get());
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && first.ok()) {
          first = unavailable(std::string("PostgreSQL: ") + PQresultErrorMessage(result.get()));
        }
      }
      if (PQstatus(connection_.get()) != CONNECTION_OK) return failure();
    }
    in_flight_ -= count;
    return first;
  }

  // Reads up to the answer of the pipeline's sync, whatever comes before it.
  Status end_pipeline() {
    for (int nulls = 0; nulls < 2;) {
      const PgResult result(PQgetResult(connection_.get()));
      if (PQstatus(connection_.get()) != CONNECTION_OK) return failure();
      nulls = result == nullptr ? nulls + 1 : 0;
      if (PQresultStatus(result.get()) == PGRES_PIPELINE_SYNC) break;
    }
    if (PQexitPipelineMode(connection_.get()) != 1) return failure();
    return {};
  }

  Status failure() const { return unavailable(std::string("PostgreSQL: ") + PQerrorMessage(connection_.get())); }

  std::string conninfo_;
  PgConnection connection_;
  std::vector<Prepared> statements_;
  std::size_t in_flight_ = 0;
};

}  // namespace

Result<std::unique_ptr<SqlConnection>> open_postgres(const std::string& conninfo) {
  auto connection = std::make_unique<PostgresConnection>(conninfo);
  LEVADA_RETURN_IF_ERROR(connection->connect());
  return std::unique_ptr<SqlConnection>(std::move(connection));
}

}  // namespace levada::registry
