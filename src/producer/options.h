// What: the producer's options: prompts, the servers that capture them, and how patient it is with both.
// Owner: cli composes them from recipe and flags.
// Thread: start-up only.
// Invariant: values are checked by the table and by run_producer(); what changes a sample is part of the run's identity.
// Each default is written here and nowhere else.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace levada::producer {

struct Options {
  std::string prompts;                  // file
  std::int64_t max_prompts = 0;         // samples of one epoch; 0: as many as the file gives
  std::int64_t max_length = 2048;       // tokens of a sample
  std::int64_t max_answer_tokens = 96;  // supervised tokens of a sample
  std::int64_t answer_batch = 8;
  double answer_timeout_s = 600;
  std::int64_t epochs = 1;
  std::int64_t prompt_seed = 42;

  std::string control_dir;
  std::string server_urls;              // "http://host:port", commas between several
  std::string target_model;             // its name, for the contract
  std::string aux_layer_ids;            // "1,8,14": in the order of their concatenation
  std::int64_t target_hidden_size = 0;  // 0: what the server says
  std::int64_t target_vocabulary = 0;   // 0: not known here, the server refuses what it does not know
  std::string target_dtype = "bfloat16";

  std::int64_t capture_batch_size = 8;
  std::int64_t producer_concurrency = 1;
  double capture_timeout_s = 300;
  std::int64_t server_failures = 3;  // capture calls in a row, then the server is dropped
  double server_outage_s = 120;      // without an answer, then it is given up
  double server_check_s = 5;
  std::string store_transport = "auto";
};

void describe(OptionTable& table, Options& options);

}  // namespace levada::producer
