// Plans with a draft through the worker: proposals come back, versions are looked up, a swap happens between two plans.
#include <condition_variable>
#include <mutex>

#include "engine/worker.h"
#include "model/draft_support_test.h"

namespace levada::engine {
namespace {

using model::DraftFolders;
using model::DraftSlice;

class WorkerDraft : public testing::Test {
 protected:
  WorkerDraft() {
    auto target = std::move(model::load_model(folders.target(), folders.options(), *device)).value();
    draft = std::move(target->load_draft(folders.draft())).value();
    auto pool = std::move(target->make_kv_pool(32)).value();
    worker = std::make_unique<Worker>(std::move(target), std::move(pool));
    worker->set_result_sink([this](core::StepResult result) {
      std::lock_guard lock(mutex);
      results.push_back(std::move(result));
      arrived.notify_all();
    });
  }
  // A plan that prefills six tokens and wants three guesses.
  core::StepResult run(core::DraftVersion version) {
    model::Sequence sequence{{5, 17, 30, 41, 2, 9}, {3, 1, 7}, 0};
    auto plan = std::make_unique<core::StepPlan>();
    model::add_slice(*plan, sequence, {6, 0, version == core::kNoDraft ? 0 : 3});
    plan->draft = version;
    worker->submit(std::move(plan));
    std::unique_lock lock(mutex);
    arrived.wait(lock, [&] { return results.size() > taken; });
    return results[taken++];
  }

  DraftFolders folders;
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  std::shared_ptr<const model::Draft> draft;
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<core::StepResult> results;
  std::size_t taken = 0;
  std::unique_ptr<Worker> worker;  // dies before what its sink touches
};

TEST_F(WorkerDraft, APlanWithADraftGivesProposals) {
  worker->offer_draft(core::DraftVersion{1}, draft);
  const core::StepResult plain = run(core::kNoDraft), drafted = run(core::DraftVersion{1});
  EXPECT_TRUE(plain.status.ok() && drafted.status.ok()) << drafted.status.to_string();
  EXPECT_EQ(plain.proposed.size(), 0u);
  EXPECT_EQ(drafted.proposed.size(), 3u);
  EXPECT_EQ(drafted.sampled, plain.sampled);
}

TEST_F(WorkerDraft, AVersionThatIsNotOfferedFailsItsStepAlone) {
  worker->offer_draft(core::DraftVersion{1}, draft);
  EXPECT_EQ(run(core::DraftVersion{2}).status.code(), StatusCode::kInternal);
  EXPECT_TRUE(run(core::DraftVersion{1}).status.ok());
  worker->withdraw_draft(core::DraftVersion{1});
  EXPECT_FALSE(run(core::DraftVersion{1}).status.ok());
  EXPECT_TRUE(run(core::kNoDraft).status.ok());
}

TEST_F(WorkerDraft, AnotherVersionTakesOverWithTheNextPlan) {
  std::swap(folders.tensors["layers.0.mlp.gate_proj.weight"], folders.tensors["layers.1.mlp.gate_proj.weight"]);
  folders.write();
  worker->offer_draft(core::DraftVersion{1}, draft);
  worker->offer_draft(core::DraftVersion{2}, std::move(worker->model().load_draft(folders.draft())).value());
  const core::StepResult first = run(core::DraftVersion{1}), second = run(core::DraftVersion{2}),
                         again = run(core::DraftVersion{1});
  EXPECT_NE(first.proposed, second.proposed);
  EXPECT_EQ(first.proposed, again.proposed);
  EXPECT_EQ(first.sampled, second.sampled);
}

}  // namespace
}  // namespace levada::engine
