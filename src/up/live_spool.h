// What: the reading end of a server's live samples: the newest conversations, each once, a random share held out.
// Owner: the flywheel.
// Thread: any; reads files.
// Invariant: whether a sample is held out depends on its content alone, so that none is ever trained on and measured on; a line
// that is no whole sample (its writer was killed) is passed over.
// Format: docs/formats/live-samples.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace levada::up {

struct LiveSample {
  std::string task_id;
  std::vector<std::int32_t> input_ids;
  std::int64_t prompt_tokens = 0;  // of them, before the answer
  std::string line;                // as it stands in the file
};

struct SpoolRules {
  double held_out_share = 0.1;
  std::int64_t max_length = 2048;  // a question that leaves no room below it is no sample
};

struct Spool {
  // The newest last. Names ascend, also over restarts of the server.
  std::vector<LiveSample> train, held_out;
};

// Of each kind the newest `most_train` and the oldest `most_held_out`.
Spool read_spool(const std::filesystem::path& folder, const SpoolRules& rules, std::size_t most_train,
                 std::size_t most_held_out);

// Samples of a file of such lines.
std::vector<LiveSample> read_samples(const std::filesystem::path& file);

}  // namespace levada::up
