#include "fanout/sim/world.h"

#include <algorithm>

#include "fanout/audit.h"

namespace levada::fanout::sim {

World::World(std::shared_ptr<const RunConfig> config, std::uint64_t seed)
    : dice(seed),
      config_(std::move(config)),
      generations_(static_cast<std::size_t>(config_->total()), 0),
      states_(static_cast<std::size_t>(config_->total()), EntryState::kAbsent),
      cursors_(config_->consumers.size(), 0) {
  auto opened = Machine::open(config_, {}, now_us);
  LEVADA_CHECK(opened.ok(), opened.status().to_string().c_str());
  machine_ = std::make_unique<Machine>(std::move(*opened));
  settle();
}

void World::crash() {
  restarts += 1;
  auto opened = Machine::open(config_, database_.rows(), now_us);
  LEVADA_CHECK(opened.ok(), opened.status().to_string().c_str());
  machine_ = std::make_unique<Machine>(std::move(*opened));
  rewind_allowed_ = false;
  settle();
}

void World::advance_us(std::int64_t delta_us) {
  now_us += delta_us;
  land_late_writes();
  machine_->on_time(now_us);
  rewind_allowed_ = false;
  settle();
}

void World::settle() {
  database_.commit(machine_->take_changes());
  for (const std::string& problem : audit(state(), now_us)) problems.push_back(problem);
  for (std::int64_t p = 0; p < state().total(); ++p) {
    const auto i = static_cast<std::size_t>(p);
    const EntryRow& row = state().entry(p).row;
    expect(row.generation >= generations_[i], "4: a generation went back at ", row.nonce);
    const bool queued_anew = row.state == EntryState::kQueued && states_[i] != EntryState::kQueued;
    expect(!queued_anew || row.generation > generations_[i], "4: a generation was used twice at ", row.nonce);
    generations_[i] = row.generation;
    states_[i] = row.state;
  }
  for (std::size_t c = 0; c < cursors_.size(); ++c) {
    const std::int64_t cursor = state().consumers[c].row.cursor;
    expect(cursor >= cursors_[c] || rewind_allowed_, "10: a cursor went back without a resume");
    cursors_[c] = cursor;
  }
}

void World::land_late_writes() {
  for (auto writer = late_writers.begin(); writer != late_writers.end();) {
    if (writer->second > now_us) {
      ++writer;
      continue;
    }
    objects[writer->first] = true;
    writer = late_writers.erase(writer);
  }
}

void World::restart_server(std::int64_t server) {
  incarnation[server] += 1;
  std::erase_if(objects, [&](const auto& object) { return object.first.server == server; });
  std::erase_if(late_writers, [&](const auto& writer) { return writer.first.server == server; });
  std::erase_if(answered, [&](const auto& entry) { return entry.first.first == server; });
}

void World::remove(const ObjectKey& key) {
  for (const auto& [c, read] : reads_) {
    expect(
        read.first != key || read.second <= now_us || !exists(key),
        "L1: position " + std::to_string(key.position) + " removed while consumer " + std::to_string(c) + " reads it");
  }
  objects.erase(key);
}

}  // namespace levada::fanout::sim
