// What: a picture of latency percentiles: one curve per series, percent from left to right, milliseconds upwards in decades.
// Owner: pure functions.
// Thread: any.
// Invariant: the file is a whole PNG or isn't written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace levada::bench {

// `series`: by name, sorted milliseconds. kUnavailable naming the file if it can't be written.
Status write_percentile_chart(const std::string& file, const std::string& title,
                              const std::map<std::string, std::vector<double>>& series);

}  // namespace levada::bench
