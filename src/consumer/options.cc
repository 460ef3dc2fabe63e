#include "consumer/options.h"

namespace levada::consumer {

void describe(OptionTable& table, Options& options) {
  table.begin_room("consumer");
  table.add("consumer_id", &options.consumer_id, "which of the run's consumers this process is");
  table.add("control_dir", &options.control_dir, "folder that the producer and its consumers share");
  table.add("registry_url", &options.registry_url, "http://host:port of the registry; default: what run.json says");
  table.add("start_wait_s", &options.start_wait_s, "seconds to wait for the run to come up").range(0, 86'400);
  table.add("registry_outage_s", &options.registry_outage_s, "seconds a silent registry is waited for")
      .range(0, 86'400);
  table.add("idle_timeout_s", &options.idle_timeout_s, "seconds without a sample before giving up").range(1, 604'800);
  table.add("read_margin_s", &options.read_margin_s, "seconds before a lease's end in which no read may end")
      .range(0, 3600);
  table.add("max_quarantined_bytes", &options.max_quarantined_bytes, "buffers of failed reads that may pile up")
      .range(0, 1e15);
  table.add("takeover", &options.takeover, "end a live session of the same consumer");
  table.add("check_first_values", &options.check_first_values, "refuse a first sample with values that are not finite");
}

}  // namespace levada::consumer
