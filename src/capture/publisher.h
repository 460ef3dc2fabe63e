// What: Publisher, captured rows on their way into named objects of the arena: space first, then rows as the layers
// give them, then seal; only then does anybody learn the names.
// Owner: the serving process; the arena must outlive it, and the worker that calls on_rows() must end before it.
// Thread: on_rows() on the worker's thread; open(), seal() and drop() from any; callbacks run on the Publisher's own
// threads and must not wait.
// Invariant: an object named in a reply is readable; a capture that fails for whatever reason leaves no object behind
// and touches no other capture. A sample's generations only rise; the same generation again is answered from the
// journal, never captured twice.
//
// An arena on a device takes rows from that device; then all samples that wait are measured there at once before they
// are sealed, and after a device's error no capture is accepted any more.
//
//   open() ──space for every tensor──> filling ──seal()──> hashed, sealed ──> published (journal, on_sealed)
//     └── refused, or no space in time ──> failed   └─drop(), a row missing──> dropped: its memory is free at once
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "base/mailbox.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "capture/row_sink.h"
#include "capture/sample_spec.h"
#include "core/sample_ref.h"
#include "store/arena.h"
#include "store/batch_copier.h"

namespace levada::capture {

// What a reply says of a sample once all its objects are readable.
struct Published {
  std::string store_id, sample_id;
  std::uint32_t generation = 1;
  std::uint64_t incarnation = 0;
  std::vector<std::int32_t> aux_layer_ids;  // of the first feature made of layers, in its order
  std::vector<core::StoredTensor> tensors;  // features, then passthrough
  std::vector<std::uint64_t> addresses;     // of the tensors in the arena's device; none in host memory
};

class Capture;

class Publisher final : public RowSink {
 public:
  struct Options {
    SampleLimits limits;
    std::int64_t space_wait_us = 30'000'000;  // how long a full arena is waited for
  };
  // A capture that now waits for its rows, or the answer it got before.
  using Opened = std::variant<core::CaptureId, Published>;

  Publisher(store::Arena& arena, Options options, Metrics& metrics);
  // Finishes what was asked for, refuses what waits for space, frees what was never sealed.
  ~Publisher() override;

  const SampleLimits& limits() const { return options_.limits; }

  // Checks the spec and reserves its memory for exactly `tokens` rows. Calls are served in order: a full arena makes
  // the later ones wait (back-pressure), and after space_wait_us fails the first with kResourceExhausted.
  // kAlreadyExists: this sample is being captured now. kFailedPrecondition: its generation is older than one seen
  // before, or the objects it was answered with have been removed since.
  void open(SampleSpec spec, std::int32_t tokens, std::function<void(Result<Opened>)> on_opened);
  // Every row was computed: makes the objects readable. kInternal naming what is missing otherwise; then they are gone.
  void seal(core::CaptureId id, std::function<void(Result<Published>)> on_sealed);
  // The request failed. An id that is not filling (any more) is ignored.
  void drop(core::CaptureId id);

  void on_rows(core::CaptureId id, const core::TokenRange& range, std::int32_t state,
               const device::TensorView& rows) override;
  // Of the device that the arena is on.
  bool takes_rows_of(const device::Device& device) const override;
  void on_device_rows(std::int32_t state, std::span<const CapturedRows> captured, device::Stream& stream) override;

 private:
  struct Recorded {
    std::int64_t generation = 0;         // the highest seen
    bool active = false;                 // being captured
    std::optional<Published> published;  // its answer
  };
  struct OpenJob {
    SampleSpec spec;
    std::int32_t tokens;
    std::function<void(Result<Opened>)> on_opened;
  };
  struct SealJob {
    std::shared_ptr<Capture> capture;
    std::function<void(Result<Published>)> on_sealed;  // none: it was dropped, and only its last copies are waited for
  };

  void run_opener();
  void run_sealer();
  Result<Opened> open_now(OpenJob& job);
  Result<std::vector<store::Slot>> reserve(const SampleSpec& spec, std::int32_t tokens);
  Result<Published> seal_now(Capture& capture, const Result<std::vector<std::uint64_t>>& measured);
  // The checksums of every capture's features; empty ones where the arena is in host memory.
  std::vector<Result<std::vector<std::uint64_t>>> measure(std::span<const SealJob> jobs);
  Result<std::vector<std::uint64_t>> measure_on_device(std::span<const store::Transfer> transfers,
                                                       std::span<const std::shared_ptr<device::Event>> written);
  std::shared_ptr<Capture> filling(core::CaptureId id);
  // The recorded answer, or nothing: then the generation is entered as being captured, until leave().
  Result<std::optional<Published>> enter(const SampleSpec& spec);
  void leave(const SampleSpec& spec, std::optional<Published> published);
  bool readable(const Published& published) const;
  std::shared_ptr<Capture> take(core::CaptureId id);

  store::Arena& arena_;
  const Options options_;
  Counter& published_count_;
  Counter& published_bytes_;
  Counter& batch_count_;
  Counter& failed_count_;

  std::mutex mutex_;
  std::uint64_t last_id_ = 0;
  // Shared with the row copy that is going on: a drop must not take the memory away under it.
  std::map<core::CaptureId, std::shared_ptr<Capture>> filling_;
  std::map<std::string, Recorded, std::less<>> journal_;  // by sample id; lives as long as the arena's objects can
  std::atomic<bool> closing_{false};
  Status broken_;                               // under mutex_: what the device failed with
  std::unique_ptr<store::BatchCopier> copier_;  // the sealer's, made when first needed

  Mailbox<OpenJob> open_jobs_;
  Mailbox<SealJob> seal_jobs_;
  Thread opener_, sealer_;
};

}  // namespace levada::capture
