// Seeded histories: clients of every backend on one arena, restarts of the server in between, every answer held against
// a model that is a map.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/hash.h"
#include "store/test_store.h"
#include "support/instrumented.h"

namespace levada::store {
namespace {

// What the arena should hold.
struct Modelled {
  std::size_t bytes;
  unsigned seed;
  int holders = 0;
  bool removed = false;
};

class History {
 public:
  explicit History(unsigned seed) : random_(seed), served_(256 * 1024) { open_clients(); }

  void step() {
    switch (random_() % 12) {
      case 0:
      case 1:
      case 2: return put();
      case 3: return get();
      case 4: return exist();
      case 5:
      case 6: return remove();
      case 7: return hold(true);
      case 8: return hold(false);
      case 9:
      case 10: return let_go();
      case 11:
        if (random_() % 40 == 0) restart();
    }
  }

  // Everything goes once everybody has let go.
  void finish() {
    while (!holds_.empty()) let_go();
    for (auto& [key, object] : model_) (void)any().remove(key);
    EXPECT_EQ(served_.arena->stats().used_bytes, 0u);
    EXPECT_EQ(served_.arena->stats().largest_free_bytes, served_.arena->capacity_bytes());
    served_.arena->check_invariants();
  }

 private:
  struct Hold {
    std::string key;
    std::optional<ObjectView> view;
    std::optional<Lease> lease;
    std::uint64_t checksum;
  };

  void open_clients() {
    clients_.push_back(std::make_unique<LocalStore>(*served_.arena));
    clients_.push_back(served_.client(served_.server->shm_url()));
    clients_.push_back(served_.client(served_.server->tcp_url()));
  }
  ObjectStore& any() { return *clients_[random_() % clients_.size()]; }
  std::string key() { return "s/run:" + std::to_string(random_() % 12) + "/g1/x"; }
  // The model's record of a key, once what nobody holds any more is struck out.
  Modelled* known(const std::string& key) {
    const auto there = model_.find(key);
    if (there == model_.end()) return nullptr;
    if (there->second.removed && there->second.holders == 0) {
      model_.erase(there);
      return nullptr;
    }
    return &there->second;
  }
  Modelled* readable(const std::string& key) {
    Modelled* object = known(key);
    return object != nullptr && !object->removed ? object : nullptr;
  }

  // The client may have its bytes a moment before the server lets go of the object.
  void sent_with(std::uint64_t views) {
    ASSERT_TRUE(served_.eventually([&] { return served_.arena->stats().views == views; }));
  }

  void put() {
    const std::string name = key();
    const std::size_t bytes = random_() % 3 == 0 ? random_() % 200'000 : random_() % 3000;
    const unsigned seed = static_cast<unsigned>(random_() % 250);
    const Status status = any().put_from(name, pattern(bytes, seed));
    if (known(name) != nullptr) {
      ASSERT_EQ(status.code(), StatusCode::kAlreadyExists) << status.to_string();
    } else if (status.ok()) {
      model_[name] = {bytes, seed};
    } else {
      ASSERT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
      ASSERT_LT(served_.arena->stats().largest_free_bytes, FreeList::block_bytes(bytes));
    }
  }

  void get() {
    const std::string name = key();
    const Modelled* object = readable(name);
    std::vector<std::byte> to(object == nullptr ? 10 : object->bytes);
    const std::uint64_t views = served_.arena->stats().views;
    const auto info = any().get_into(name, to);
    sent_with(views);
    ASSERT_EQ(info.ok(), object != nullptr) << info.status().to_string();
    if (object == nullptr) return;
    ASSERT_EQ(to, pattern(object->bytes, object->seed));
    ASSERT_EQ(info->checksum, hash64(to));
  }

  void exist() {
    const std::string name = key();
    const Modelled* object = readable(name);
    const auto info = any().is_exist(name);
    ASSERT_TRUE(info.ok());
    ASSERT_EQ(info->has_value(), object != nullptr);
  }

  void remove() {
    const std::string name = key();
    Modelled* object = known(name);
    // A reader that cleared its slot told nobody, so that the arena may hear of it just now.
    const bool lingered = model_.contains(name) && object != nullptr && object->removed;
    const auto outcome = any().remove(name);
    ASSERT_TRUE(outcome.ok());
    if (object == nullptr) {
      ASSERT_NE(*outcome, RemoveOutcome::kStillRead);
    } else if (object->holders > 0) {
      ASSERT_EQ(*outcome, RemoveOutcome::kStillRead);
      object->removed = true;
    } else {
      ASSERT_EQ(*outcome, RemoveOutcome::kFreed) << lingered;
      model_.erase(name);
    }
  }

  void hold(bool as_view) {
    const std::string name = key();
    Modelled* object = readable(name);
    ObjectStore& client = any();
    const bool holds = !as_view || client.capabilities().zero_copy;
    Hold taken{name, std::nullopt, std::nullopt, 0};
    bool ok = false;
    const std::uint64_t views = served_.arena->stats().views;
    if (as_view) {
      if (auto view = client.view(name); (ok = view.ok())) taken.view = *std::move(view);
    } else if (auto lease = client.lease(name, 0); (ok = lease.ok())) {
      taken.lease = *std::move(lease);
    }
    ASSERT_EQ(ok, object != nullptr);
    if (!holds) sent_with(views);
    if (object == nullptr || !holds) return;
    ++object->holders;
    taken.checksum = hash64(pattern(object->bytes, object->seed));
    holds_.push_back(std::move(taken));
  }

  void let_go() {
    if (holds_.empty()) return;
    std::swap(holds_[random_() % holds_.size()], holds_.back());
    Hold last = std::move(holds_.back());
    holds_.pop_back();
    Modelled& object = model_.at(last.key);
    if (last.view) {
      ASSERT_EQ(hash64(last.view->bytes()), last.checksum) << "whatever happened meanwhile";
      ASSERT_EQ(last.view->still_valid(), !object.removed);
    }
    last.view.reset();
    if (last.lease) {
      const std::uint64_t before = served_.arena->stats().leases;
      last.lease.reset();
      ASSERT_TRUE(served_.eventually([&] { return served_.arena->stats().leases < before; }));
    }
    --object.holders;
  }

  void restart() {
    holds_.clear();
    const bool local_only = random_() % 2 == 0;
    if (local_only) clients_.clear();  // else they find out by themselves
    if (!clients_.empty()) clients_.erase(clients_.begin());
    served_.stop();
    served_.start();
    model_.clear();
    if (clients_.empty()) return open_clients();
    clients_.insert(clients_.begin(), std::make_unique<LocalStore>(*served_.arena));
  }

  std::mt19937 random_;
  ServedArena served_;
  std::vector<std::unique_ptr<ObjectStore>> clients_;
  std::map<std::string, Modelled> model_;
  std::vector<Hold> holds_;
};

TEST(StoreHistory, EveryAnswerOfEveryBackendIsTheModelsWhateverCameBefore) {
  for (unsigned seed = 0; seed < (test::kInstrumented ? 8 : 40); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History history(seed);
    for (int step = 0; step < 400 && !::testing::Test::HasFatalFailure(); ++step) history.step();
    if (::testing::Test::HasFatalFailure()) return;
    history.finish();
  }
}

}  // namespace
}  // namespace levada::store
