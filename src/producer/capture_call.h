// What: one capture request and its reply: the body that is sent, and what each row of the answer means for its task.
// Owner: pure functions over values.
// Thread: any.
// Invariant: rows are judged in the protocol's order and a reply is believed as a whole or not at all: a malformed or
// misdirected row makes the call fail and nothing is adopted. What is adopted names every feature of the contract with the
// shape that the prompt's length demands, in the store the reply names.
// Format: spec/capture-fanout.md Q1, Q2 (the patch carrier), Q11, Q12; docs/api.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "core/sample_ref.h"
#include "fanout/producer_messages.h"
#include "producer/prepared.h"
#include "producer/store_choice.h"

namespace levada::producer {

// What every sample of the run consists of.
struct CaptureContract {
  std::string store_id;
  std::vector<std::int32_t> aux_layer_ids;  // in the order of their concatenation
  std::int64_t hidden_size = 0;
  DType dtype = DType::kBF16;  // of hidden_states
  std::int64_t aux_width() const { return static_cast<std::int64_t>(aux_layer_ids.size()) * hidden_size; }
  std::int64_t bytes_per_token() const {
    return aux_width() * static_cast<std::int64_t>(bytes_of(dtype)) +
           2 * static_cast<std::int64_t>(sizeof(std::int64_t));
  }
};

// The objects of a dflash sample.
inline constexpr const char* kHiddenStates = "hidden_states";
inline constexpr const char* kInputIds = "input_ids";
inline constexpr const char* kLossMask = "loss_mask";

struct CaptureTask {
  fanout::CaptureOrder order;
  const PreparedSample* sample = nullptr;
};

// `fresh_key()`: 128 random bits in hexadecimal, new for every task of every attempt.
std::string capture_body(const std::vector<CaptureTask>& tasks, const CaptureContract& contract,
                         const std::function<std::string()>& fresh_key);

struct CaptureVerdict {
  enum class Kind : std::uint8_t {
    kCaptured,   // `ref` is complete
    kRetryable,  // this task failed, `error` says why
    kRefused,    // the server says that this sample can never be captured
    kTerminal,   // its result breaks the contract, as others' would: trying again cannot help
  } kind = Kind::kCaptured;
  core::SampleRef ref;
  std::string error;
};

// One verdict per task. A Status means that the whole call failed and no row was believed.
Result<std::vector<CaptureVerdict>> read_capture_reply(const std::string& body, const std::vector<CaptureTask>& tasks,
                                                       const CaptureContract& contract, StoreChoice store);

}  // namespace levada::producer
