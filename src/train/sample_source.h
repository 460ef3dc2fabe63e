// What: SampleSource, where a trainer's samples come from: captured features in a store, files, or a test's memory.
// Owner: the source owns the bytes it hands out; the trainer borrows them until it says that their step is done.
// Thread: the trainer's. A source may fetch ahead on threads of its own.
// Invariant: a sample's spans all count the same tokens; row t of hidden_states belongs to input_ids[t] and holds the
// outputs of the draft's target layers, concatenated in target_layer_ids order. "Not yet" blocks, "ended" is an empty
// answer, "failed" is a Status: three different answers (B48).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace levada::train {

struct Sample {
  std::string sample_id;                         // with `epoch` and the seed the key of the anchors' random numbers
  std::uint32_t epoch = 0;                       // how often this sample was visited before
  std::span<const std::int64_t> input_ids;       // [tokens]
  std::span<const std::int64_t> loss_mask;       // [tokens]; > 0: supervised (the target's own answer)
  std::span<const std::uint16_t> hidden_states;  // bfloat16 bits, [tokens, layers * hidden]
  std::span<const float> hidden_states_f32;      // instead, for captures in float32
  // The hidden states lie in memory of the device that trains, such as an arena mapped there: they never see the host.
  bool features_on_device = false;
  // Normally empty: the numbers that choose anchors are drawn from (seed, sample_id, epoch). Else one per token but the
  // last, to repeat another trainer's run.
  std::span<const float> anchor_uniforms;
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  // The next `count` samples, in the order in which they are to be trained; waits until all are there. Empty: the
  // source has ended (a tail shorter than `count` is dropped and counted by the source). The spans stay valid until
  // stepped() was called for the step that used them.
  virtual Result<std::vector<Sample>> next(std::int64_t count) = 0;

  // Asked once a step has used everything handed out since the last one, and before anything comes of it. false: some of it
  // may have been other bytes by then; the step is given up, the spans end, and next() gives the same samples, read anew.
  virtual Result<bool> confirm() { return true; }

  // A checkpoint of `step` is durable at `folder`. Comes before stepped(step).
  virtual Status checkpointed(std::int64_t step, const std::filesystem::path& folder) = 0;

  // Optimizer step `step` (1-based) has used everything handed out since the last call: it may be acknowledged and let
  // go.
  virtual Status stepped(std::int64_t step) = 0;
};

}  // namespace levada::train
