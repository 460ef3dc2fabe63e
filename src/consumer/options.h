// What: a consumer's options as far as they concern the run it belongs to: where the run is, and how patient it is.
// Owner: cli composes them from recipe and flags.
// Thread: start-up only.
// Invariant: values are checked by the table; nothing here changes what is trained.
// Each default is written here and nowhere else.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace levada::consumer {

struct Options {
  std::string consumer_id;
  std::string control_dir;    // where the producer writes run.json
  std::string registry_url;   // empty: what run.json says
  double start_wait_s = 300;  // for run.json, for the registry, and for an older session of this consumer
  double registry_outage_s = 300;
  double idle_timeout_s = 1800;  // without a sample
  double read_margin_s = 5;      // a read that ends later than this before its lease's end is not used
  std::int64_t max_quarantined_bytes = std::int64_t{8} << 30;
  bool takeover = false;  // ends a live session of the same consumer_id
  bool check_first_values = true;
};

void describe(OptionTable& table, Options& options);

}  // namespace levada::consumer
