// Opening a run: a new one, or one that its rows describe (spec §5.8).
#include <algorithm>

#include "fanout/admission.h"
#include "fanout/entry_edges.h"
#include "fanout/machine.h"
#include "fanout/op_log.h"

namespace levada::fanout {

namespace {

Status other_run(const std::string& field, const std::string& stored, const std::string& given) {
  return Status(StatusCode::kFailedPrecondition,
                "the registry's file was made with " + field + " = " + stored + ", this run has " + given, field);
}

std::vector<std::pair<std::string, std::string>> identity_of(const RunRow& row) {
  return {{"run_id", row.run_id},
          {"store_id", row.store_id},
          {"contract_digest", row.contract_digest},
          {"source_digest", row.source_digest},
          {"total_samples", std::to_string(row.total_samples)},
          {"expected_consumers", row.expected_consumers},
          {"max_live_refs", std::to_string(row.max_live_refs)},
          {"max_live_bytes", std::to_string(row.max_live_bytes)},
          {"capture_reservation_bytes", std::to_string(row.capture_reservation_bytes)}};
}

Status check_identity(const RunConfig& config, const Rows& rows) {
  if (rows.run->schema_version != RunRow().schema_version) {
    return other_run("schema_version", std::to_string(rows.run->schema_version),
                     std::to_string(RunRow().schema_version));
  }
  const auto stored = identity_of(*rows.run);
  const auto given = identity_of(config);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (stored[i].second != given[i].second) return other_run(given[i].first, stored[i].second, given[i].second);
  }
  if (rows.sources.size() != config.sources.size()) return data_loss("the table sources has lost rows");
  for (const SourceRow& row : rows.sources) {
    if (row.source_index < 0 || row.source_index >= config.total()) {
      return data_loss("the table sources holds position " + std::to_string(row.source_index));
    }
    const Source& source = config.sources[static_cast<std::size_t>(row.source_index)];
    const std::string field = "sources[" + std::to_string(row.source_index) + "]";
    if (row.source_sample_id != source.sample_id) return other_run(field, row.source_sample_id, source.sample_id);
    if (row.ntokens != source.ntokens) {
      return other_run(field + ".ntokens", std::to_string(row.ntokens), std::to_string(source.ntokens));
    }
  }
  return {};
}

bool has_bytes(EntryState state) {
  return state == EntryState::kCapturing || state == EntryState::kCommitting || state == EntryState::kReady ||
         state == EntryState::kEvicting;
}

// As mark_committing(): no attempt of it that was sent before writes any more.
bool has_answered(const RunConfig& config, const EntryRow& row) {
  return row.state != EntryState::kCapturing && config.servers_keep_journal && row.servers.size() == 1;
}

}  // namespace

Result<Machine> Machine::open(std::shared_ptr<const RunConfig> config, const Rows& rows, std::int64_t now_us) {
  LEVADA_RETURN_IF_ERROR(check(*config));
  if (rows.run) LEVADA_RETURN_IF_ERROR(check_identity(*config, rows));
  Machine machine(config);
  machine.create();
  if (rows.run) LEVADA_RETURN_IF_ERROR(machine.load(rows));
  machine.recover(now_us);
  upkeep(machine.state_, now_us);
  return machine;
}

// A new run's state and rows; load() then puts stored rows over it.
void Machine::create() {
  const RunConfig& config = state_.config();
  RunRow& run = state_.run;
  run.run_id = config.run_id;
  run.store_id = config.store_id;
  run.contract_digest = config.contract_digest;
  run.source_digest = config.source_digest;
  run.total_samples = config.total();
  for (const auto& [field, value] : identity_of(config)) {
    if (field == "expected_consumers") run.expected_consumers = value;
  }
  run.max_live_refs = config.max_live_refs;
  run.max_live_bytes = config.max_live_bytes;
  run.capture_reservation_bytes = config.capture_reservation_bytes;
  state_.mark_sources();
  for (const ConsumerSpec& spec : config.consumers) {
    Consumer c;
    c.spec = spec;
    c.row.consumer_id = spec.consumer_id;
    c.row.quantum = spec.quantum;
    state_.consumers.push_back(std::move(c));
  }
  for (const Consumer& c : state_.consumers) {
    const CheckpointRow start{c.row.consumer_id, 0, 0, ""};
    state_.checkpoints[{c.row.consumer_id, 0}] = start;
    state_.mark_checkpoint(start);
    state_.mark(c);
  }
}

Status Machine::load(const Rows& rows) {
  state_.take_changes();  // create()'s rows are stored already
  state_.run = *rows.run;
  const auto consumer_named = [&](const std::string& id) {
    return std::find_if(state_.consumers.begin(), state_.consumers.end(),
                        [&](const Consumer& c) { return c.row.consumer_id == id; });
  };
  for (const ConsumerRow& row : rows.consumers) {
    const auto c = consumer_named(row.consumer_id);
    if (c == state_.consumers.end()) return data_loss("the table consumers names " + row.consumer_id);
    if (row.quantum != c->spec.quantum) {
      return other_run("consumers[" + row.consumer_id + "].quantum", std::to_string(row.quantum),
                       std::to_string(c->spec.quantum));
    }
    if (row.cursor < 0 || row.cursor > state_.total() || row.cursor != row.step * row.quantum) {
      return data_loss("consumer " + row.consumer_id + " has an impossible cursor");
    }
    if (row.last_op > 0 && !decode_reply(row.last_op_reply)) {
      return data_loss("consumer " + row.consumer_id + " has an unreadable stored reply");
    }
    c->row = row;
  }
  for (const EntryRow& row : rows.entries) {
    if (!is_position(row.source_index)) return data_loss("the table entries holds an impossible position");
    if (row.state == EntryState::kReady && !row.ref) return data_loss("a ready entry has no ref");
    state_.entry(row.source_index).row = row;
    state_.set_state(row.source_index, row.state);
    if (has_bytes(row.state)) state_.count_live(1, row.reserved_bytes);
  }
  for (const LeaseRow& row : rows.leases) {
    const auto c = consumer_named(row.consumer_id);
    if (c == state_.consumers.end() || !is_position(row.source_index)) {
      return data_loss("the table read_leases names an unknown consumer or position");
    }
    c->leases[row.source_index] = {row.token, row.generation, row.session_epoch, row.registry_epoch, 0, false};
  }
  for (const GarbageRow& row : rows.garbage) {
    if (!is_position(row.source_index)) return data_loss("the table garbage holds an impossible position");
    state_.garbage[{row.source_index, row.generation}].row = row;
    if (!row.late) state_.count_live(1, row.bytes);
  }
  for (const CheckpointRow& row : rows.checkpoints) state_.checkpoints[{row.consumer_id, row.step}] = row;
  for (const CounterRow& row : rows.counters) {
    for (std::size_t i = 0; i < kCounts; ++i) {
      if (row.name == to_string(static_cast<Count>(i))) state_.count(static_cast<Count>(i)) = row.value;
    }
  }
  state_.take_changes();  // nothing differs from the rows yet
  return {};
}

// Its cursor is where it was; whoever starts it again may have mended what it failed by.
void Machine::give_another_chance() {
  for (Consumer& c : state_.consumers) {
    if (c.row.state != ConsumerState::kFailed) continue;
    c.row.failure.clear();
    c.row.client_nonce.clear();
    set_consumer_state(c, ConsumerState::kDetached);
  }
  if (state_.run.status != RunStatus::kFailed && state_.run.status != RunStatus::kCompletedWithFailures) return;
  state_.run.status = RunStatus::kDraining;  // until a consumer is left
  state_.run.fail_reason.clear();
  state_.mark_run();
}

void Machine::recover(std::int64_t now_us) {
  const Times& times = state_.config().times;
  const bool writers_may_live = !state_.config().servers_are_new;
  const std::int64_t quiet_us = writers_may_live ? now_us + times.capture_timeout_us : 0;
  state_.run.registry_epoch += 1;
  state_.mark_run();
  if (state_.config().retry_failed) give_another_chance();
  // A drained run that is started again with consumers left goes on.
  const bool unfinished =
      std::any_of(state_.consumers.begin(), state_.consumers.end(), [](const Consumer& c) { return !c.is_terminal(); });
  if (state_.run.status == RunStatus::kDraining && unfinished) state_.run.status = RunStatus::kActive;
  for (Consumer& c : state_.consumers) {
    if (!c.row.client_nonce.empty()) c.session_expires_us = now_us + times.session_ttl_us;
    c.patience_ends_us =
        now_us + (c.row.state == ConsumerState::kExpected ? times.registration_timeout_us : times.detach_grace_us);
    for (auto& [p, lease] : c.leases) lease.expires_us = now_us + times.lease_ttl_us;
  }
  const std::vector<std::int64_t> present(state_.present().begin(), state_.present().end());
  for (const std::int64_t p : present) {
    Entry& e = state_.entry(p);
    const EntryState s = e.row.state;
    e.since_us = now_us;
    if (e.row.attempt > 0 && has_bytes(s) && !has_answered(state_.config(), e.row)) e.quiet_after_us = quiet_us;
    e.not_before_us = s == EntryState::kEvicting ? e.quiet_after_us : 0;
    if (s == EntryState::kCapturing && writers_may_live && state_.config().servers_keep_journal) {
      // The worker is dead, and its reply as good as lost: the same generation is sent again, in the slot it has.
      e.row.worker.clear();
      keep_for_retry(state_, p, now_us);
    } else if (s == EntryState::kCapturing || s == EntryState::kCommitting) {
      // A capture's writer may still be at work; a committing one has answered.
      burn(state_, p, s == EntryState::kCapturing && writers_may_live, now_us);
    } else if (s == EntryState::kQueued) {
      dequeue(state_, p);
    }
  }
  for (auto& [key, garbage] : state_.garbage) {
    garbage.since_us = now_us;
    garbage.not_before_us = garbage.row.quarantined && writers_may_live ? quiet_us : now_us;
  }
  state_.touch_all();
}

}  // namespace levada::fanout
