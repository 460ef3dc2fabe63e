// What: DraftDesk, which loads drafts beside the running server, lets one take over between steps, and keeps the one before
// for the way back.
// Owner: serve_command, between the scheduler and the Api; destroyed once the scheduler's thread has ended.
// Thread: any; orders are carried out on a thread of its own, one after the other.
// Invariant: the worker knows at most the serving draft, the previous one and the one being loaded; a draft is withdrawn
// only when no plan can name it; a failed order changes nothing.
//
// load: read, offer to the worker ──Scheduler::use_draft()──> no plan in flight names another ──> serving; what served is
// the previous one, and the one before that is withdrawn.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/mailbox.h"
#include "base/thread.h"
#include "model/model.h"
#include "serve/draft_control.h"

namespace levada::cli {

class DraftDesk final : public serve::DraftControl {
 public:
  // What it stands on: Model::load_draft, the Worker's two, the Scheduler's two, and the date.
  struct Ground {
    std::function<Result<std::shared_ptr<const model::Draft>>(const std::filesystem::path&)> load;
    std::function<void(core::DraftVersion, std::shared_ptr<const model::Draft>)> offer;
    std::function<void(core::DraftVersion)> withdraw;
    std::function<void(core::DraftProfile, std::function<void()>)> use;
    std::function<void(std::function<void(const sched::Snapshot&)>)> inspect;
    std::function<std::int64_t()> unix_s;
  };
  static constexpr int kMaxWaiting = 8;

  DraftDesk(Ground ground, const model::DraftRoom& room);
  // What is being read is read to its end; what waits is refused.
  ~DraftDesk() override;

  // The draft to start with: on the caller's thread, before the scheduler's runs.
  Status begin(const std::string& path);

  void load(serve::DraftOrder order, Done done) override;
  void unload(Done done) override;
  void roll_back(Done done) override;
  void list(Done done) override;

 private:
  struct Held {
    serve::DraftReport report;      // its counts: up to when it last stopped serving
    sched::SpeculationTotals base;  // the server's when it last took over
  };
  struct Order {
    std::function<Status()> work;
    Done done;
  };
  enum class Leaving { kBecomesPrevious, kSwapsPlaces };

  void run();
  void submit(std::function<Status()> work, Done done);
  Status load_now(const serve::DraftOrder& order);
  Status unload_now();
  Status roll_back_now();
  // Reads the folder and offers it to the worker.
  Result<Held> read(const serve::DraftOrder& order);
  Status swap(std::optional<Held> next, Leaving leaving);
  // Until no plan in flight names another draft; the server's counts before.
  Result<sched::SpeculationTotals> take_over(core::DraftProfile profile);
  serve::DraftsReport report(const sched::SpeculationTotals& now);

  const Ground ground_;
  const serve::DraftRoomReport room_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::optional<Held> serving_, previous_;
  int waiting_ = 0;
  bool closing_ = false;
  std::uint32_t versions_ = 0;  // given out; of the desk's thread, and begin()'s before
  Mailbox<Order> orders_;
  Thread thread_;  // last: joined while the fields above still live
};

}  // namespace levada::cli
