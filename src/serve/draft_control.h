// What: DraftControl, what the draft endpoints ask of whoever owns the drafts, and the reports they answer with.
// Owner: composed at start-up; must outlive the Api. The one in service is cli::DraftDesk.
// Thread: any; `done` is called once, on any thread, maybe before the call returns.
// Invariant: an order that fails changes nothing; orders are carried out one after the other.
// Format of the answers: docs/api.md, "Drafts".
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "core/draft.h"
#include "sched/scheduler.h"

namespace levada::serve {

struct DraftReport {
  core::DraftProfile profile;
  std::string path;
  std::int64_t layers = 0, parameters = 0, bytes = 0;
  std::int64_t since_unix_s = 0;    // when it last took over
  sched::SpeculationTotals counts;  // while it served
};

// The largest draft that can be loaded, as sized at start-up.
struct DraftRoomReport {
  std::int64_t layers = 0, kv_width = 0, features = 0, parameters = 0, block_size = 0;
  std::string algorithm = "DFLASH";  // of the drafts there is room for: the other kind is refused
};

struct DraftsReport {
  std::optional<DraftReport> serving, previous;
  std::optional<DraftRoomReport> room;  // unset: this server takes no drafts
};

struct DraftOrder {
  std::string path;
  std::optional<std::string> name;  // unset: the folder's
};

class DraftControl {
 public:
  using Done = std::function<void(Result<DraftsReport>)>;

  virtual ~DraftControl() = default;
  // kNotFound, kInvalidArgument (not a draft of this model, damaged), kPayloadTooLarge (larger than the room, with the
  // numbers), kFailedPrecondition (no room at all), kResourceExhausted (too many orders wait).
  virtual void load(DraftOrder order, Done done) = 0;
  // kNotFound without a draft in service. It becomes the previous one.
  virtual void unload(Done done) = 0;
  // The previous draft serves again. kNotFound without one.
  virtual void roll_back(Done done) = 0;
  virtual void list(Done done) = 0;
};

}  // namespace levada::serve
