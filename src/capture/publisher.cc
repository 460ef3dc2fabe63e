#include "capture/publisher.h"

#include "base/log.h"
#include "capture/capture.h"

namespace levada::capture {

namespace {

// What every key of this generation begins with.
std::string prefix_of(std::string_view store_id, std::string_view sample_id, std::int64_t generation) {
  std::string key = core::object_key(store_id, sample_id, static_cast<std::uint32_t>(generation), "x");
  key.pop_back();
  return key;
}

// Names and sizes in the order of Capture's slots.
std::vector<std::pair<std::string, std::uint64_t>> objects_of(const SampleSpec& spec, std::int32_t tokens,
                                                              std::int32_t hidden_size) {
  std::vector<std::pair<std::string, std::uint64_t>> objects;
  for (const FeatureSpec& feature : spec.features) {
    objects.emplace_back(feature.name, feature.states.size() * levada::bytes_of(feature.dtype) *
                                           static_cast<std::uint64_t>(tokens) *
                                           static_cast<std::uint64_t>(hidden_size));
  }
  for (const PassthroughSpec& tensor : spec.passthrough) objects.emplace_back(tensor.name, tensor.bytes.size());
  return objects;
}

}  // namespace

Publisher::Publisher(store::Arena& arena, Options options, Metrics& metrics)
    : arena_(arena),
      options_(std::move(options)),
      published_count_(metrics.counter("levada:captures_total", "Samples published")),
      published_bytes_(metrics.counter("levada:capture_bytes_total", "Bytes of samples published")),
      batch_count_(metrics.counter("levada:capture_batches_total", "Batches in which samples were published")),
      failed_count_(metrics.counter("levada:capture_failures_total", "Samples that could not be published")),
      opener_("capture-open", [this] { run_opener(); }),
      sealer_("capture-seal", [this] { run_sealer(); }) {}

Publisher::~Publisher() {
  closing_ = true;
  open_jobs_.close();
  opener_.join();
  seal_jobs_.close();
  sealer_.join();
  if (published_count_.value() > 0) {
    LEVADA_LOG_INFO(published_count_.value(), " samples published in ", batch_count_.value(), " batches, ",
                    static_cast<double>(arena_.stats().publish_us) / batch_count_.value() / 1000, " ms each");
  }
}

void Publisher::run_opener() {
  std::vector<OpenJob> jobs;
  while (open_jobs_.take(jobs)) {
    for (OpenJob& job : jobs) {
      Result<Opened> opened = open_now(job);
      if (!opened.ok()) failed_count_.add();
      job.on_opened(std::move(opened));
    }
    jobs.clear();
  }
}

void Publisher::run_sealer() {
  std::vector<SealJob> jobs;
  while (seal_jobs_.take(jobs)) {
    const std::int64_t begun_us = arena_.clock().now_us();
    const auto measured = measure(jobs);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!jobs[i].on_sealed) {
        jobs[i].capture.reset();
        continue;
      }
      Result<Published> sealed = seal_now(*jobs[i].capture, measured[i]);
      jobs[i].capture.reset();  // a failed one's memory is free before anybody hears of it
      jobs[i].on_sealed(std::move(sealed));
    }
    arena_.count_publication(arena_.clock().now_us() - begun_us);
    jobs.clear();
    batch_count_.add();
  }
}

void Publisher::open(SampleSpec spec, std::int32_t tokens, std::function<void(Result<Opened>)> on_opened) {
  if (!open_jobs_.push({std::move(spec), tokens, on_opened})) on_opened(unavailable("the server is stopping"));
}

Result<Publisher::Opened> Publisher::open_now(OpenJob& job) {
  if (closing_) return unavailable("the server is stopping");
  LEVADA_RETURN_IF_ERROR(check(job.spec, job.tokens, options_.limits));
  LEVADA_ASSIGN_OR_RETURN(std::optional<Published> recorded, enter(job.spec));
  if (recorded) return Opened(std::move(*recorded));
  Result<std::vector<store::Slot>> slots = reserve(job.spec, job.tokens);
  if (!slots.ok()) {
    leave(job.spec, std::nullopt);
    return slots.status();
  }
  core::CaptureId id{};
  {
    std::lock_guard lock(mutex_);
    id = core::CaptureId{++last_id_};
  }
  auto capture = std::make_shared<Capture>(id, std::move(job.spec), job.tokens, options_.limits.hidden_size,
                                           std::move(slots).value());
  if (Status begun = capture->begin(arena_); !begun.ok()) {
    leave(capture->spec(), std::nullopt);
    return begun;
  }
  std::lock_guard lock(mutex_);
  filling_.emplace(id, std::move(capture));
  return Opened(id);
}

Result<std::vector<store::Slot>> Publisher::reserve(const SampleSpec& spec, std::int32_t tokens) {
  const auto objects = objects_of(spec, tokens, options_.limits.hidden_size);
  std::vector<std::uint64_t> sizes;
  for (const auto& [name, bytes] : objects) sizes.push_back(bytes);
  LEVADA_RETURN_IF_ERROR(arena_.check_fits(sizes));
  const std::int64_t deadline_us = arena_.clock().now_us() + options_.space_wait_us;
  std::vector<store::Slot> slots;
  for (const auto& [name, bytes] : objects) {
    const std::string key =
        core::object_key(spec.store_id, spec.sample_id, static_cast<std::uint32_t>(spec.generation), name);
    LEVADA_ASSIGN_OR_RETURN(store::Slot slot, arena_.reserve(key, bytes, deadline_us));
    slots.push_back(std::move(slot));
  }
  return slots;
}

Result<std::optional<Published>> Publisher::enter(const SampleSpec& spec) {
  const auto refuse = [](const std::string& why, const char* field) {
    return Status(StatusCode::kFailedPrecondition, why, field);
  };
  std::lock_guard lock(mutex_);
  LEVADA_RETURN_IF_ERROR(broken_);
  Recorded& recorded = journal_[spec.sample_id];
  if (spec.generation < recorded.generation) {
    return refuse("stale: generation " + std::to_string(recorded.generation) + " of this sample is known", "gen");
  }
  if (recorded.active) return Status(StatusCode::kAlreadyExists, "this sample is being captured now", "sample_id");
  if (recorded.published && spec.generation == recorded.generation) {
    if (readable(*recorded.published)) return recorded.published;
    return refuse("this generation was published and its objects have been removed; ask for a higher one", "gen");
  }
  // An older generation's objects go first: the new ones may need their memory.
  if (recorded.published && spec.replace) {
    arena_.remove_prefix(prefix_of(spec.store_id, spec.sample_id, recorded.generation));
  }
  recorded = {spec.generation, true, std::nullopt};
  return std::optional<Published>();
}

void Publisher::leave(const SampleSpec& spec, std::optional<Published> published) {
  std::lock_guard lock(mutex_);
  Recorded& recorded = journal_[spec.sample_id];
  recorded.active = false;
  recorded.published = std::move(published);
}

bool Publisher::readable(const Published& published) const {
  for (const core::StoredTensor& tensor : published.tensors) {
    if (!arena_.find(core::object_key(published.store_id, published.sample_id, published.generation, tensor.name))) {
      return false;
    }
  }
  return true;
}

std::shared_ptr<Capture> Publisher::take(core::CaptureId id) {
  std::lock_guard lock(mutex_);
  const auto it = filling_.find(id);
  if (it == filling_.end()) return nullptr;
  std::shared_ptr<Capture> capture = std::move(it->second);
  filling_.erase(it);
  return capture;
}

void Publisher::seal(core::CaptureId id, std::function<void(Result<Published>)> on_sealed) {
  std::shared_ptr<Capture> capture = take(id);
  LEVADA_CHECK(capture != nullptr, "a capture is sealed once, after open() gave its id");
  if (!seal_jobs_.push({std::move(capture), on_sealed})) on_sealed(unavailable("the server is stopping"));
}

std::vector<Result<std::vector<std::uint64_t>>> Publisher::measure(std::span<const SealJob> jobs) {
  std::vector<Result<std::vector<std::uint64_t>>> results(jobs.size(), std::vector<std::uint64_t>());
  if (arena_.device() == nullptr) return results;
  std::vector<store::Transfer> transfers;
  std::vector<std::shared_ptr<device::Event>> written;
  std::vector<std::size_t> counts(jobs.size(), 0);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!jobs[i].on_sealed || !jobs[i].capture->complete().ok()) continue;
    for (const std::span<const std::byte> bytes : jobs[i].capture->features()) {
      transfers.push_back({bytes.data(), nullptr, bytes.size()});
      ++counts[i];
    }
    const auto event = jobs[i].capture->written();
    if (event != nullptr && (written.empty() || written.back() != event)) written.push_back(event);
  }
  if (transfers.empty()) return results;
  const auto all = measure_on_device(transfers, written);
  if (!all.ok()) {
    arena_.count_copy_error();
    std::lock_guard lock(mutex_);
    broken_ = unavailable("captures ended with the device's error: " + all.status().message());
    results.assign(jobs.size(), all.status());
    return results;
  }
  auto next = all->begin();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto end = next + static_cast<std::ptrdiff_t>(counts[i]);
    results[i] = std::vector(next, end);
    next = end;
  }
  return results;
}

Result<std::vector<std::uint64_t>> Publisher::measure_on_device(
    std::span<const store::Transfer> transfers, std::span<const std::shared_ptr<device::Event>> written) {
  if (copier_ == nullptr) {
    LEVADA_ASSIGN_OR_RETURN(copier_, store::BatchCopier::create(*arena_.device()));
  }
  for (const auto& event : written) LEVADA_RETURN_IF_ERROR(copier_->after(*event));
  return copier_->copy_measured(transfers);
}

Result<Published> Publisher::seal_now(Capture& capture, const Result<std::vector<std::uint64_t>>& measured) {
  Result<Published> sealed =
      measured.ok() ? capture.seal(arena_.incarnation(), *measured) : Result<Published>(measured.status());
  const SampleSpec& spec = capture.spec();
  if (!sealed.ok()) {
    arena_.remove_prefix(prefix_of(spec.store_id, spec.sample_id, spec.generation));
    leave(spec, std::nullopt);
    failed_count_.add();
    return sealed;
  }
  leave(spec, sealed.value());
  published_count_.add();
  for (const core::StoredTensor& tensor : sealed->tensors) published_bytes_.add(static_cast<double>(tensor.bytes()));
  return sealed;
}

void Publisher::drop(core::CaptureId id) {
  std::shared_ptr<Capture> capture = take(id);
  if (capture == nullptr) return;
  leave(capture->spec(), std::nullopt);
  failed_count_.add();
  // Rows that a device is still copying are waited for elsewhere.
  if (capture->written() != nullptr) seal_jobs_.push({std::move(capture), nullptr});
}

// Null once dropped: its request ended while this step was on its way.
std::shared_ptr<Capture> Publisher::filling(core::CaptureId id) {
  std::lock_guard lock(mutex_);
  const auto it = filling_.find(id);
  return it == filling_.end() ? nullptr : it->second;
}

void Publisher::on_rows(core::CaptureId id, const core::TokenRange& range, std::int32_t state,
                        const device::TensorView& rows) {
  if (const auto capture = filling(id)) capture->write(range, state, rows);
}

bool Publisher::takes_rows_of(const device::Device& device) const {
  const device::Device* const own = arena_.device();
  return own != nullptr && own->kind() == device.kind() && own->index() == device.index();
}

void Publisher::on_device_rows(std::int32_t state, std::span<const CapturedRows> captured, device::Stream& stream) {
  std::vector<std::pair<std::shared_ptr<Capture>, core::TokenRange>> captures;
  std::vector<RowCopy> copies;
  for (const CapturedRows& one : captured) {
    LEVADA_CHECK(one.rows.place == arena_.device()->kind(), "rows of the arena's device");
    auto capture = filling(one.id);
    if (capture == nullptr) continue;
    const std::vector<RowCopy> own = capture->copies_of(one.range, state, one.rows);
    copies.insert(copies.end(), own.begin(), own.end());
    captures.emplace_back(std::move(capture), one.range);
  }
  if (captures.empty()) return;
  Status copied = copy_rows(copies, arena_.device()->kind(), stream);
  std::shared_ptr<device::Event> written;
  // Behind failed copies as well: some of them may be on their way.
  if (Result<std::unique_ptr<device::Event>> event = arena_.device()->make_event(); event.ok()) {
    written = *std::move(event);
    if (Status recorded = stream.record(*written); !recorded.ok()) {
      written = nullptr;
      copied = std::move(recorded);
    }
  } else {
    copied = event.status();
  }
  for (const auto& [capture, range] : captures) capture->note_copied(range, state, copied, written);
}

}  // namespace levada::capture
