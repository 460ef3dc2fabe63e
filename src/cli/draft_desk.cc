#include "cli/draft_desk.h"

#include <utility>

#include "base/lap.h"
#include "base/log.h"

namespace levada::cli {
namespace {

constexpr const char* kPath = "path";

// The request's field is the path, whatever field of the draft's own files is at fault; a damaged file and one that is too
// large are the asker's, and no retry mends them.
Status as_answer(const Status& failure) {
  const std::string what = failure.field().empty() || failure.field() == kPath
                               ? failure.message()
                               : failure.field() + ": " + failure.message();
  switch (failure.code()) {
    case StatusCode::kDataLoss: return invalid_argument(what, kPath);
    case StatusCode::kResourceExhausted: return payload_too_large(what, kPath);
    default: return Status(failure.code(), what, kPath);
  }
}

std::string name_of(const serve::DraftOrder& order) {
  if (order.name) return *order.name;
  const std::filesystem::path path = std::filesystem::path(order.path).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

sched::SpeculationTotals plus(const sched::SpeculationTotals& a, const sched::SpeculationTotals& b) {
  return {a.steps + b.steps, a.drafts + b.drafts, a.accepted + b.accepted};
}
sched::SpeculationTotals minus(const sched::SpeculationTotals& a, const sched::SpeculationTotals& b) {
  return {a.steps - b.steps, a.drafts - b.drafts, a.accepted - b.accepted};
}

Status closed() { return unavailable("the server is shutting down"); }

}  // namespace

DraftDesk::DraftDesk(Ground ground, const model::DraftRoom& room)
    : ground_(std::move(ground)),
      room_{room.layers,     room.kv_width,   room.features,
            room.parameters, room.block_size, std::string(to_string(room.kind))},
      thread_("levada-drafts", [this] { run(); }) {}

DraftDesk::~DraftDesk() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  orders_.close();
}

void DraftDesk::run() {
  std::vector<Order> orders;
  while (orders_.take(orders)) {
    for (Order& order : orders) {
      bool closing = false;
      {
        std::lock_guard lock(mutex_);
        --waiting_;
        closing = closing_;
      }
      const Status status = closing ? closed() : order.work();
      if (status.ok()) {
        list(std::move(order.done));
      } else {
        order.done(status);
      }
    }
    orders.clear();
  }
}

void DraftDesk::submit(std::function<Status()> work, Done done) {
  bool full = false;
  {
    std::lock_guard lock(mutex_);
    full = waiting_ >= kMaxWaiting;
    waiting_ += full ? 0 : 1;
  }
  if (full) return done(resource_exhausted(std::to_string(kMaxWaiting) + " orders for drafts are waiting already"));
  if (!orders_.push({std::move(work), done})) done(closed());
}

void DraftDesk::load(serve::DraftOrder order, Done done) {
  submit([this, order = std::move(order)] { return load_now(order); }, std::move(done));
}
void DraftDesk::unload(Done done) {
  submit([this] { return unload_now(); }, std::move(done));
}
void DraftDesk::roll_back(Done done) {
  submit([this] { return roll_back_now(); }, std::move(done));
}

void DraftDesk::list(Done done) {
  ground_.inspect(
      [this, done = std::move(done)](const sched::Snapshot& snapshot) { done(report(snapshot.speculation)); });
}

serve::DraftsReport DraftDesk::report(const sched::SpeculationTotals& now) {
  std::lock_guard lock(mutex_);
  serve::DraftsReport report;
  report.room = room_;
  if (previous_) report.previous = previous_->report;
  if (!serving_) return report;
  report.serving = serving_->report;
  report.serving->counts = plus(serving_->report.counts, minus(now, serving_->base));
  return report;
}

Result<DraftDesk::Held> DraftDesk::read(const serve::DraftOrder& order) {
  Lap lap;
  auto draft = ground_.load(order.path);
  if (!draft.ok()) return as_answer(draft.status());
  const model::DraftConfig& config = (*draft)->config();
  Held held;
  held.report.profile = {core::DraftVersion{++versions_}, name_of(order), static_cast<std::int32_t>(config.block_size),
                         std::string(to_string(config.kind))};
  held.report.path = order.path;
  held.report.layers = config.layers;
  held.report.parameters = config.parameters();
  held.report.bytes = (*draft)->bytes();
  LEVADA_LOG_INFO("draft ", versions_, " \"", held.report.profile.name, "\" read from ", order.path, ": ",
                  config.layers, " layers, blocks of ", config.block_size, ", ", held.report.bytes >> 20, " MiB, ",
                  lap());
  ground_.offer(held.report.profile.version, std::move(draft).value());
  return held;
}

Status DraftDesk::begin(const std::string& path) {
  LEVADA_ASSIGN_OR_RETURN(Held held, read({path, std::nullopt}));
  held.report.since_unix_s = ground_.unix_s();
  ground_.use(held.report.profile, [] {});
  std::lock_guard lock(mutex_);
  serving_ = std::move(held);
  return {};
}

Status DraftDesk::load_now(const serve::DraftOrder& order) {
  LEVADA_ASSIGN_OR_RETURN(Held held, read(order));
  return swap(std::move(held), Leaving::kBecomesPrevious);
}

Status DraftDesk::unload_now() {
  if (!serving_) return not_found("no draft is in service");
  return swap(std::nullopt, Leaving::kBecomesPrevious);
}

Status DraftDesk::roll_back_now() {
  if (!previous_) return not_found("no draft served before; DELETE /drafts serves without one");
  return swap(previous_, Leaving::kSwapsPlaces);
}

// Only this thread writes serving_ and previous_, so it reads them without the lock.
Status DraftDesk::swap(std::optional<Held> next, Leaving leaving) {
  LEVADA_ASSIGN_OR_RETURN(const sched::SpeculationTotals now,
                          take_over(next ? next->report.profile : core::DraftProfile()));
  std::optional<core::DraftVersion> dropped;
  {
    std::lock_guard lock(mutex_);
    if (serving_) serving_->report.counts = plus(serving_->report.counts, minus(now, serving_->base));
    if (next) {
      next->base = now;
      next->report.since_unix_s = ground_.unix_s();
    }
    std::optional<Held> left = std::exchange(serving_, std::move(next));
    if (leaving == Leaving::kSwapsPlaces) {
      previous_ = std::move(left);
    } else if (left) {
      if (previous_) dropped = previous_->report.profile.version;
      previous_ = std::move(left);
    }
  }
  if (dropped) ground_.withdraw(*dropped);
  LEVADA_LOG_INFO("draft in service: ", serving_ ? serving_->report.profile.name : std::string("none"));
  return {};
}

Result<sched::SpeculationTotals> DraftDesk::take_over(core::DraftProfile profile) {
  struct Taken {
    sched::SpeculationTotals before;
    bool done = false;
  };
  // Shared: the scheduler may answer when nobody waits any more.
  const auto taken = std::make_shared<Taken>();
  ground_.inspect([taken](const sched::Snapshot& snapshot) { taken->before = snapshot.speculation; });
  ground_.use(std::move(profile), [this, taken] {
    {
      std::lock_guard lock(mutex_);
      taken->done = true;
    }
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return taken->done || closing_; });
  if (!taken->done) return closed();
  return taken->before;
}

}  // namespace levada::cli
