// What: run_producer(), the process behind `levada produce`: prompts to samples to plan, the registry with its RPC, and the
// Producer, until everything is captured, trained and removed.
// Owner: cli calls it; it owns everything it starts.
// Thread: blocks its caller; ends every thread it started.
// Invariant: bad prompts, ids and options are refused before any server hears of the run. Started again in the same
// control_dir it goes on where it stopped, with the same samples and ids.
// Files in control_dir: prepared.jsonl (docs/formats/prompts.md), windowed-capture.sqlite (docs/formats/registry.md),
// run.json (docs/formats/run_card.md).
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "fanout/run_config.h"
#include "producer/options.h"
#include "producer/producer.h"

namespace levada::producer {

struct RunRequest {
  Options options;
  // run_id, store_id, consumers, limits and times; sources, digests, bytes_per_token and feature_names are filled in here.
  fanout::RunConfig run;
  std::filesystem::path tokenizer;   // tokenizer.json or GGUF; needed for raw prompts only
  std::string capture_token;         // of the capture servers and their TCP stores
  std::string registry_token;        // of consumers
  std::string registry_admin_token;  // of operators; empty: producer operations only from inside
  std::string registry_host = "127.0.0.1";
  std::uint16_t registry_port = 0;                        // 0: any free port
  std::function<void(const std::string&)> on_state = {};  // what it is doing, for people
};

// The last snapshot after a clean end: everything removed, no consumer missing. A Status says why the run failed, or
// kAborted that it was stopped and may be started again.
Result<fanout::SnapshotReply> run_producer(const RunRequest& request, std::stop_token stop,
                                           const Producer::OnProgress& on_progress);

// "1,8,14" as numbers; kInvalidArgument for anything else, duplicates or an empty list.
Result<std::vector<std::int32_t>> parse_layer_ids(const std::string& text);

}  // namespace levada::producer
