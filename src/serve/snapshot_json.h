// What: the scheduler's Snapshot as JSON, for /server_info and /debug/audit.
// Owner: pure function.
// Thread: any.
// Invariant: one key per field, of the same name; avg_spec_accept_length, which SGLang's bench_serving reads, once there is one.
// Private to the route groups.
#pragma once

#include <nlohmann/json.hpp>

#include "sched/scheduler.h"

namespace levada::serve {

nlohmann::ordered_json snapshot_json(const sched::Snapshot& snapshot);
// Text that may hold any bytes (paths) as JSON.
std::string dump(const nlohmann::ordered_json& json);
// SGLang's /v1/loads: one rank and the sum over it.
nlohmann::ordered_json loads_json(const sched::Snapshot& snapshot, const std::string& version, std::int64_t unix_s);

}  // namespace levada::serve
