#include "registry/metrics_text.h"

#include <utility>
#include <vector>

namespace levada::registry {

namespace {

constexpr std::string_view kMetricPrefix = "levada:fanout_";

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

void begin_metric(std::string& text, std::string_view name) {
  text.append("# TYPE ").append(kMetricPrefix).append(name).append(" gauge\n");
}

void add_sample(std::string& text, std::string_view name, std::string_view label, std::string_view of,
                std::int64_t value) {
  text.append(kMetricPrefix).append(name);
  if (!label.empty()) text.append("{").append(label).append("=\"").append(escaped(of)).append("\"}");
  text.append(" ").append(std::to_string(value)).append("\n");
}

}  // namespace

// All are gauges: a total that a registry counts since its opening falls when it is opened again.
std::string metrics_text(const fanout::SnapshotReply& snapshot) {
  std::string text;
  for (const auto& [name, value] : snapshot.counters) {
    begin_metric(text, name);
    add_sample(text, name, "", "", value);
  }
  begin_metric(text, "entries");
  for (const auto& [state, count] : snapshot.entries) add_sample(text, "entries", "state", state, count);
  begin_metric(text, "run_status");
  add_sample(text, "run_status", "status", to_string(snapshot.status), 1);
  using Member = std::int64_t fanout::ConsumerSnapshot::*;
  const std::pair<const char*, Member> members[] = {{"consumer_cursor", &fanout::ConsumerSnapshot::cursor},
                                                    {"consumer_step", &fanout::ConsumerSnapshot::step},
                                                    {"consumer_leases", &fanout::ConsumerSnapshot::leases},
                                                    {"consumer_lag", &fanout::ConsumerSnapshot::lag},
                                                    {"consumer_blocked_ms", &fanout::ConsumerSnapshot::blocked_ms}};
  for (const auto& [name, member] : members) {
    begin_metric(text, name);
    for (const auto& consumer : snapshot.consumers)
      add_sample(text, name, "consumer", consumer.consumer_id, consumer.*member);
  }
  return text;
}

}  // namespace levada::registry
