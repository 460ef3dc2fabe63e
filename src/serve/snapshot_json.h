// What: the scheduler's Snapshot as JSON, for /server_info and /debug/audit.
// Owner: pure function.
// Thread: any.
// Invariant: one key per field, of the same name.
// Private to the route groups.
#pragma once

#include <nlohmann/json.hpp>

#include "sched/scheduler.h"

namespace levada::serve {

nlohmann::ordered_json snapshot_json(const sched::Snapshot& snapshot);
// Text that may hold any bytes (paths) as JSON.
std::string dump(const nlohmann::ordered_json& json);

}  // namespace levada::serve
