#include "producer/options.h"

namespace levada::producer {
namespace {

constexpr double kMostSeconds = 604'800;

void describe_prompts(OptionTable& table, Options& options) {
  table.add("prompts", &options.prompts, "file of prompts, one JSON object a line");
  table.add("max_prompts", &options.max_prompts, "samples of one epoch; 0: all of the file").range(0, 1 << 30);
  table.add("max_length", &options.max_length, "tokens of a sample; the rest is cut off").range(2, 1 << 20);
  table.add("max_answer_tokens", &options.max_answer_tokens, "supervised tokens of a sample").range(2, 1 << 20);
  table.add("answer_batch", &options.answer_batch, "prompts answered in one request").range(1, 1024);
  table.add("answer_timeout_s", &options.answer_timeout_s, "seconds for one such request").range(1, kMostSeconds);
  table.add("epochs", &options.epochs, "passes over the prompts").range(1, 10'000);
  table.add("prompt_seed", &options.prompt_seed, "seed of the order when there is more than one pass").range(0, 1e15);
}

void describe_capture(OptionTable& table, Options& options) {
  table.add("control_dir", &options.control_dir, "folder of the run's state, shared with its consumers");
  table.add("server_urls", &options.server_urls, "capture servers, http://host:port with commas between them");
  table.add("target_model", &options.target_model, "the target's name, part of the contract");
  table.add("aux_layer_ids", &options.aux_layer_ids, "captured layers in the order of their concatenation: 1,8,14");
  table.add("target_hidden_size", &options.target_hidden_size, "0: what the server says").range(0, 1 << 20);
  table.add("target_vocabulary", &options.target_vocabulary, "tokens of the target; 0: not known").range(0, 1 << 24);
  table.add("target_dtype", &options.target_dtype, "element type of captured states").choices({"bfloat16"});
  table.add("capture_batch_size", &options.capture_batch_size, "prompts of one capture call").range(1, 1024);
  table.add("producer_concurrency", &options.producer_concurrency, "capture calls at once per server").range(1, 64);
  table.add("capture_timeout_s", &options.capture_timeout_s, "seconds for one capture call").range(1, kMostSeconds);
  table.add("server_failures", &options.server_failures, "failed calls in a row that drop a server").range(1, 1000);
  table.add("server_outage_s", &options.server_outage_s, "seconds of silence that give a server up")
      .range(0, kMostSeconds);
  table.add("server_check_s", &options.server_check_s, "seconds between two looks at a server").range(0.1, 3600);
  table.add("store_transport", &options.store_transport, "how consumers read captured objects")
      .choices({"auto", "shm", "tcp", "nvlink", "ucx"});
}

}  // namespace

void describe(OptionTable& table, Options& options) {
  table.begin_room("producer");
  describe_prompts(table, options);
  describe_capture(table, options);
}

}  // namespace levada::producer
