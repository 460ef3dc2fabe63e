#include "capture/options.h"

#include <charconv>

namespace levada::capture {

void describe(OptionTable& table, Options& options) {
  table.begin_room("capture");
  table.add("enable_spec_capture", &options.enable_spec_capture, "capture hidden states for /generate's spec_capture");
  table.add("spec_capture_store_id", &options.spec_capture_store_id, "the one name space captures are written in");
  table
      .add("spec_capture_aux_layer_ids", &options.spec_capture_aux_layer_ids,
           "layers of \"aux\" where an item names none, e.g. 1,9,17 (k: the output of decoder layer k, from 0)")
      .flag_alias("aux-hidden-state-layer-ids")
      .several_words();
  table
      .add("spec_capture_max_sample_bytes", &options.spec_capture_max_sample_bytes,
           "largest sample, all its tensors together")
      .range(1, 1e15);
  table.add("capture_space_wait_s", &options.capture_space_wait_s, "seconds a capture waits for space").range(0, 3600);
}

Result<std::vector<std::int32_t>> aux_layers(const Options& options, std::int32_t layers) {
  constexpr const char* kName = "spec_capture_aux_layer_ids";
  std::vector<std::int32_t> ids;
  const std::string& text = options.spec_capture_aux_layer_ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (stop < end && *stop != ',' && *stop != ' ')) {
      return invalid_argument("must be layer numbers between commas, got \"" + text + "\"", kName);
    }
    if (id < 0 || id >= layers) {
      return invalid_argument("names layer " + std::to_string(id) + "; this model's are 0 to " +
                                  std::to_string(layers - 1) + " (k: the output of decoder layer k)",
                              kName);
    }
    ids.push_back(id);
    at = stop < end ? stop + 1 : stop;
  }
  return ids;
}

}  // namespace levada::capture
