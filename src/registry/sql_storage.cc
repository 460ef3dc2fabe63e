#include "registry/sql_storage.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "registry/postgres_connection.h"
#include "registry/sqlite_connection.h"

namespace levada::registry {

namespace {

using fanout::NamedEnum;

// A ref's JSON, kept while its entry goes through its states: the row is written again each time, the ref never changes.
class RefTexts {
 public:
  explicit RefTexts(RefContext context) : context_(std::move(context)) {}
  const std::string& of(const fanout::RefPtr& ref) {
    if (texts_.size() >= kMaxKept && texts_.count(ref) == 0) texts_.clear();
    const auto [found, is_new] = texts_.try_emplace(ref);
    if (is_new) found->second = ref_json(*ref, context_);
    return found->second;
  }

 private:
  static constexpr std::size_t kMaxKept = 1024;
  RefContext context_;
  std::map<fanout::RefPtr, std::string> texts_;
};

// --- one column: its SQL type, its value out and in ------------------------------------------------------------------

template <class M>
constexpr std::string_view sql_type() {
  return std::integral<M> ? "BIGINT" : "TEXT";
}

SqlValue to_sql(std::integral auto value, RefTexts&) { return static_cast<std::int64_t>(value); }
SqlValue to_sql(const std::string& value, RefTexts&) { return value; }
template <NamedEnum E>
SqlValue to_sql(E value, RefTexts&) {
  return std::string(to_string(value));
}
SqlValue to_sql(const std::vector<std::string>& values, RefTexts&) {
  if (values.empty()) return std::string();
  return nlohmann::json(values).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
SqlValue to_sql(const fanout::RefPtr& ref, RefTexts& texts) { return ref == nullptr ? std::string() : texts.of(ref); }

Status from_sql(const std::string& text, std::string& out) {
  out = text;
  return {};
}
template <std::integral I>
Status from_sql(const std::string& text, I& out) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return data_loss("is no number: \"" + text + "\"");
  out = static_cast<I>(number);
  return {};
}
template <NamedEnum E>
Status from_sql(const std::string& text, E& out) {
  const auto known = fanout::named<E>(text);
  if (!known) return data_loss("is no state: \"" + text + "\"");
  out = *known;
  return {};
}
Status from_sql(const std::string& text, std::vector<std::string>& out) {
  out.clear();
  if (text.empty()) return {};
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array()) return data_loss("is no list of strings");
  for (const auto& element : json) {
    if (!element.is_string()) return data_loss("is no list of strings");
    out.push_back(element.get<std::string>());
  }
  return {};
}
Status from_sql(const std::string& text, fanout::RefPtr& out) {
  if (text.empty()) return {};
  auto ref = parse_ref(text);
  if (!ref.ok()) return data_loss("is no ref: " + ref.status().to_string());
  out = std::make_shared<const core::SampleRef>(std::move(*ref));
  return {};
}

// --- visitors of a row's field list ----------------------------------------------------------------------------------

struct Columns {
  std::vector<std::string> names;
  std::vector<std::string> types;
  std::vector<std::string> keys;
  template <class T, class M>
  void operator()(std::string_view name, M T::*) {
    names.emplace_back(name);
    types.emplace_back(sql_type<M>());
  }
  template <class T, class M>
  void key(std::string_view name, M T::*member) {
    keys.emplace_back(name);
    (*this)(name, member);
  }
};

template <class T>
struct RowWriter {
  const T& row;
  RefTexts& texts;
  std::vector<SqlValue>& out;
  template <class M>
  void operator()(std::string_view, M T::*member) {
    out.push_back(to_sql(row.*member, texts));
  }
  template <class M>
  void key(std::string_view name, M T::*member) {
    (*this)(name, member);
  }
};

template <class T>
struct RowReader {
  T& row;
  const SqlRow& columns;
  Status& status;
  std::size_t next = 0;
  template <class M>
  void operator()(std::string_view name, M T::*member) {
    const std::size_t column = next++;
    if (!status.ok()) return;
    const Status read = from_sql(columns[column], row.*member);
    if (!read.ok()) status = data_loss(std::string(T::kTable) + "." + std::string(name) + " " + read.message());
  }
  template <class M>
  void key(std::string_view name, M T::*member) {
    (*this)(name, member);
  }
};

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

template <class T>
Columns columns_of() {
  Columns columns;
  T::fields(columns);
  return columns;
}

template <class T>
std::string create_sql() {
  const Columns columns = columns_of<T>();
  std::string text = "CREATE TABLE IF NOT EXISTS " + std::string(T::kTable) + " (";
  for (std::size_t i = 0; i < columns.names.size(); ++i)
    text += columns.names[i] + " " + columns.types[i] + " NOT NULL, ";
  return text + "PRIMARY KEY (" + joined(columns.keys) + "))";
}

template <class T>
std::string select_sql() {
  const Columns columns = columns_of<T>();
  return "SELECT " + joined(columns.names) + " FROM " + T::kTable + " ORDER BY " + joined(columns.keys);
}

template <class T>
std::string upsert_sql() {
  const Columns columns = columns_of<T>();
  std::vector<std::string> values;
  std::vector<std::string> sets;
  for (std::size_t i = 0; i < columns.names.size(); ++i) {
    const std::string& name = columns.names[i];
    values.push_back("$" + std::to_string(i + 1));
    if (std::find(columns.keys.begin(), columns.keys.end(), name) == columns.keys.end()) {
      sets.push_back(name + " = excluded." + name);
    }
  }
  return "INSERT INTO " + std::string(T::kTable) + " (" + joined(columns.names) + ") VALUES (" + joined(values) +
         ") ON CONFLICT (" + joined(columns.keys) + ") DO UPDATE SET " + joined(sets);
}

class SqlStorage final : public Storage {
 public:
  SqlStorage(std::unique_ptr<SqlConnection> connection, const RefContext& context)
      : connection_(std::move(connection)), texts_(context) {}

  Status open() {
    LEVADA_RETURN_IF_ERROR(open_table<fanout::RunRow>(run_));
    LEVADA_RETURN_IF_ERROR(open_table<fanout::SourceRow>(sources_));
    LEVADA_RETURN_IF_ERROR(open_table<fanout::ConsumerRow>(consumers_));
    LEVADA_RETURN_IF_ERROR(open_table<fanout::EntryRow>(entries_));
    LEVADA_RETURN_IF_ERROR(open_table<fanout::LeaseRow>(leases_));
    LEVADA_RETURN_IF_ERROR(open_table<fanout::GarbageRow>(garbage_));
    LEVADA_RETURN_IF_ERROR(open_table<fanout::CheckpointRow>(checkpoints_));
    LEVADA_RETURN_IF_ERROR(open_table<fanout::CounterRow>(counters_));
    LEVADA_ASSIGN_OR_RETURN(erase_lease_, connection_->prepare("DELETE FROM read_leases WHERE token = $1", 1));
    LEVADA_ASSIGN_OR_RETURN(erase_garbage_,
                            connection_->prepare("DELETE FROM garbage WHERE source_index = $1 AND generation = $2", 2));
    return {};
  }

  Result<fanout::Rows> load() override {
    fanout::Rows rows;
    std::vector<fanout::RunRow> runs;
    LEVADA_RETURN_IF_ERROR(read(runs));
    if (runs.size() > 1) return data_loss("the registry's database holds more than one run");
    if (!runs.empty()) rows.run = runs.front();
    LEVADA_RETURN_IF_ERROR(read(rows.sources));
    LEVADA_RETURN_IF_ERROR(read(rows.consumers));
    LEVADA_RETURN_IF_ERROR(read(rows.entries));
    LEVADA_RETURN_IF_ERROR(read(rows.leases));
    LEVADA_RETURN_IF_ERROR(read(rows.garbage));
    LEVADA_RETURN_IF_ERROR(read(rows.checkpoints));
    LEVADA_RETURN_IF_ERROR(read(rows.counters));
    return rows;
  }

  Status commit(const fanout::Changes& changes) override {
    LEVADA_RETURN_IF_ERROR(connection_->begin());
    Status status = write_all(changes);
    if (status.ok()) status = connection_->commit();
    if (!status.ok()) connection_->rollback();
    return status;
  }

 private:
  template <class T>
  Status open_table(std::size_t& upsert) {
    LEVADA_RETURN_IF_ERROR(connection_->execute(create_sql<T>()));
    LEVADA_ASSIGN_OR_RETURN(upsert, connection_->prepare(upsert_sql<T>(), columns_of<T>().names.size()));
    return {};
  }

  template <class T>
  Status read(std::vector<T>& out) {
    LEVADA_ASSIGN_OR_RETURN(const std::vector<SqlRow> found, connection_->query(select_sql<T>()));
    for (const SqlRow& columns : found) {
      T row;
      Status status;
      T::fields(RowReader<T>{row, columns, status});
      LEVADA_RETURN_IF_ERROR(status);
      out.push_back(std::move(row));
    }
    return {};
  }

  template <class T>
  Status write(std::size_t statement, const std::vector<T>& rows) {
    for (const T& row : rows) {
      parameters_.clear();
      T::fields(RowWriter<T>{row, texts_, parameters_});
      LEVADA_RETURN_IF_ERROR(connection_->run(statement, parameters_));
    }
    return {};
  }

  Status write_all(const fanout::Changes& changes) {
    const fanout::Rows& rows = changes.upserts;
    if (rows.run) LEVADA_RETURN_IF_ERROR(write(run_, std::vector{*rows.run}));
    LEVADA_RETURN_IF_ERROR(write(sources_, rows.sources));
    LEVADA_RETURN_IF_ERROR(write(consumers_, rows.consumers));
    LEVADA_RETURN_IF_ERROR(write(entries_, rows.entries));
    LEVADA_RETURN_IF_ERROR(write(leases_, rows.leases));
    LEVADA_RETURN_IF_ERROR(write(garbage_, rows.garbage));
    LEVADA_RETURN_IF_ERROR(write(checkpoints_, rows.checkpoints));
    LEVADA_RETURN_IF_ERROR(write(counters_, rows.counters));
    for (const std::string& token : changes.erased_leases) {
      LEVADA_RETURN_IF_ERROR(connection_->run(erase_lease_, {token}));
    }
    for (const fanout::GarbageKey& key : changes.erased_garbage) {
      LEVADA_RETURN_IF_ERROR(connection_->run(erase_garbage_, {key.source_index, key.generation}));
    }
    return {};
  }

  std::unique_ptr<SqlConnection> connection_;
  RefTexts texts_;
  std::size_t run_ = 0, sources_ = 0, consumers_ = 0, entries_ = 0, leases_ = 0, garbage_ = 0, checkpoints_ = 0,
              counters_ = 0, erase_lease_ = 0, erase_garbage_ = 0;
  std::vector<SqlValue> parameters_;
};

Result<std::unique_ptr<Storage>> open_on(std::unique_ptr<SqlConnection> connection, const RefContext& context) {
  auto storage = std::make_unique<SqlStorage>(std::move(connection), context);
  LEVADA_RETURN_IF_ERROR(storage->open());
  return std::unique_ptr<Storage>(std::move(storage));
}

}  // namespace

Result<std::unique_ptr<Storage>> open_sqlite_storage(const std::string& path, const RefContext& context) {
  LEVADA_ASSIGN_OR_RETURN(auto connection, open_sqlite(path));
  return open_on(std::move(connection), context);
}

Result<std::unique_ptr<Storage>> open_postgres_storage(const std::string& conninfo, const RefContext& context) {
  LEVADA_ASSIGN_OR_RETURN(auto connection, open_postgres(conninfo));
  return open_on(std::move(connection), context);
}

}  // namespace levada::registry
