// What: SampleSpec, what one captured sample shall consist of, and the check that it can be captured at all.
// Owner: a value; serve reads it from a request, the Publisher carries it out.
// Thread: any.
// Invariant: names are unique over features and passthrough; what passed check() fits the model and the limits, and its
// bytes are known exactly from the number of tokens.
// Format: SpecForge's capture item (spec/capture-fanout.md §2); id charset and bounds are those its servers enforce.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace levada::capture {

// One tensor [1, tokens, width]: the given states side by side on the last axis, in the given order.
struct FeatureSpec {
  std::string name;
  std::vector<std::int32_t> states;  // layers (their outputs), or kFinalNorm alone
  DType dtype = DType::kBF16;        // float32, float16 or bfloat16
};

// A tensor the client gives to be stored with the sample, verbatim.
struct PassthroughSpec {
  std::string name;
  DType dtype = DType::kI64;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  // row-major, little-endian
};

struct SampleSpec {
  std::string store_id;
  std::string sample_id;
  std::int64_t generation = 1;
  bool replace = false;  // objects of an older generation of this sample go first
  std::vector<FeatureSpec> features;
  std::vector<PassthroughSpec> passthrough;
};

struct SampleLimits {
  std::string store_id;  // the one name space this server writes in
  std::int32_t layers = 0, hidden_size = 0;
  std::int64_t max_sample_bytes = std::int64_t{1} << 30;
};

// kInvalidArgument, kOutOfRange or kPayloadTooLarge naming the item's field and the limit.
Status check(const SampleSpec& spec, std::int32_t tokens, const SampleLimits& limits);

// Bytes of all its objects.
std::int64_t bytes_of(const SampleSpec& spec, std::int32_t tokens, std::int32_t hidden_size);

// Every state any feature wants, ascending, each once (kFinalNorm first).
std::vector<std::int32_t> states_of(const SampleSpec& spec);

}  // namespace levada::capture
