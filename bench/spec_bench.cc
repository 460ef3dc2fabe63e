#include "bench/spec_bench.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <span>
#include <unordered_set>

#include "base/thread.h"
#include "bench/draft_stage.h"
#include "engine/worker.h"
#include "sched/scheduler.h"

namespace levada::bench {
namespace {

using Instant = std::chrono::steady_clock::time_point;
using Tokens = std::vector<core::Token>;

constexpr std::int32_t kBlock = 8, kWarmupTokens = 24;

double seconds(Instant from, Instant to) { return std::chrono::duration<double>(to - from).count(); }

// What one run of a batch gave.
struct Run {
  double rate = 0;  // tok/s from when every request had its first token
  std::map<core::RequestId, Tokens> answers;
  DraftCount count;
};

// Collects the answers of one batch.
class Collector final : public core::OutputSink {
 public:
  std::future<Result<Run>> start(std::span<const core::Request> requests) {
    std::lock_guard lock(mutex_);
    waiting_for_first_.clear();
    for (const core::Request& request : requests) waiting_for_first_.insert(core::value(request.id));
    open_ = requests.size();
    tokens_ = 0;
    run_ = {};
    failure_ = {};
    done_ = {};
    return done_.get_future();
  }
  void end_one(const Status& status) {
    std::lock_guard lock(mutex_);
    end(status);
  }
  void on_outputs(std::vector<core::OutputDelta> deltas) override {
    std::lock_guard lock(mutex_);
    const bool waited = !waiting_for_first_.empty();
    for (const core::OutputDelta& delta : deltas) {
      tokens_ += static_cast<std::int64_t>(delta.token_ids.size());
      Tokens& answer = run_.answers[delta.request];
      answer.insert(answer.end(), delta.token_ids.begin(), delta.token_ids.end());
      if (!delta.token_ids.empty() || delta.finish) waiting_for_first_.erase(core::value(delta.request));
    }
    if (waited && waiting_for_first_.empty()) {
      first_ = std::chrono::steady_clock::now();
      tokens_at_first_ = tokens_;
    }
    for (const core::OutputDelta& delta : deltas)
      if (delta.finish) end(delta.finish->status);
  }

 private:
  void end(const Status& status) {
    if (!status.ok()) failure_ = status;
    if (--open_ > 0) return;
    const double spent = std::max(seconds(first_, std::chrono::steady_clock::now()), 1e-6);
    run_.rate = static_cast<double>(tokens_ - tokens_at_first_) / spent;
    done_.set_value(failure_.ok() ? Result<Run>(std::move(run_)) : Result<Run>(failure_));
  }

  std::mutex mutex_;
  std::unordered_set<std::uint64_t> waiting_for_first_;
  std::size_t open_ = 0;
  std::int64_t tokens_ = 0, tokens_at_first_ = 0;
  Instant first_;
  Run run_;
  Status failure_;
  std::promise<Result<Run>> done_;
};

// A way to decode: a scheduler with options of its own before the common executor.
struct Way {
  std::string name;
  std::string algorithm;
  bool adaptive = true, repeating = false;
  DraftStage::Proposals proposals = DraftStage::Proposals::kOwn;
  core::DraftProfile draft;
};

std::vector<Way> all_ways(const core::DraftProfile& draft) {
  using enum DraftStage::Proposals;
  // No draft of the executor's has this version: it never sees it.
  const core::DraftProfile made_up{core::DraftVersion{1'000'000}, "made up", kBlock};
  std::vector<Way> ways{{"control", "none", true, false, kOwn, {}},
                        {"rejected", "DFLASH", true, false, kWrong, made_up},
                        {"rejected_fixed", "DFLASH", false, false, kWrong, made_up},
                        {"oracle", "DFLASH", true, false, kRight, made_up},
                        {"ngram", "NGRAM", true, false, kOwn, {}},
                        {"ngram_repeating", "NGRAM", true, true, kOwn, {}}};
  if (draft.version != core::kNoDraft) ways.push_back({"draft", "DFLASH", true, false, kOwn, draft});
  return ways;
}

sched::Options options_of(const Way& way) {
  sched::Options options;
  options.speculative_algorithm = way.algorithm;
  options.speculative_adaptive = way.adaptive;
  options.disable_radix_cache = true;  // the schedulers share pages, not what they know of them
  return options;
}

class Lane {
 public:
  Lane(Way way, Relay& relay, const sched::Limits& limits, const core::KvLayout& layout, const Clock& clock)
      : way_(std::move(way)),
        stage_(relay, way_.proposals),
        scheduler_(options_of(way_), limits, layout, stage_, collector_, nullptr, clock, metrics_),
        brain_("levada-sched", [this] { scheduler_.run(); }) {
    if (way_.draft.version != core::kNoDraft) scheduler_.use_draft(way_.draft, [] {});
  }
  ~Lane() { scheduler_.stop(); }  // run() ends, then brain_ is joined

  const Way& way() const { return way_; }
  // `known`: the answers of plain decoding, one per request, or none.
  Result<Run> run(std::vector<core::Request> requests, const std::vector<Tokens>& known) {
    stage_.forget_requests();
    for (std::size_t i = 0; i < known.size(); ++i)
      stage_.expect(requests[i].id, static_cast<std::int32_t>(requests[i].prompt.size()), known[i]);
    stage_.take_count();
    auto done = collector_.start(requests);
    for (core::Request& request : requests)
      if (const Status taken = scheduler_.submit(std::move(request)); !taken.ok()) collector_.end_one(taken);
    Result<Run> run = done.get();
    if (run.ok()) run->count = stage_.take_count();
    return run;
  }

 private:
  const Way way_;
  Metrics metrics_;
  Collector collector_;
  DraftStage stage_;
  sched::Scheduler scheduler_;
  Thread brain_;
};

// What a way gave at one batch size.
struct Tally {
  std::vector<double> rates, speedups;
  DraftCount count;
  std::int64_t answers = 0, equal = 0;

  void add(const Run& run, const std::vector<Tokens>& known, double plain_rate) {
    rates.push_back(run.rate);
    speedups.push_back(run.rate / plain_rate);
    count.steps += run.count.steps;
    count.drafts += run.count.drafts;
    count.accepted += run.count.accepted;
    const std::size_t places = std::max(count.had.size(), run.count.had.size());
    count.had.resize(places);
    count.kept.resize(places);
    for (std::size_t i = 0; i < run.count.had.size(); ++i) {
      count.had[i] += run.count.had[i];
      count.kept[i] += run.count.kept[i];
    }
    std::size_t request = 0;  // ids ascend in the order of requests
    for (const auto& [id, answer] : run.answers) equal += answer == known[request++] ? 1 : 0;
    answers += static_cast<std::int64_t>(run.answers.size());
  }
  void report(const std::string& name, std::vector<Case>& cases) const {
    cases.push_back(summarize_rates(name, rates, "tok/s"));
    cases.push_back(summarize_rates(name + "_speedup", speedups, "x"));
    const auto single = [&](const std::string& suffix, double value, const char* unit, std::int64_t n) {
      cases.push_back({name + suffix, value, value, unit, n});
    };
    single("_length", count.length(), "tokens", count.steps);
    for (std::size_t i = 0; i < count.had.size(); ++i) {
      single("_accepted_" + std::to_string(i + 1),
             static_cast<double>(count.kept[i]) / static_cast<double>(count.had[i]), "share", count.had[i]);
    }
    single("_equal", static_cast<double>(equal) / static_cast<double>(std::max<std::int64_t>(answers, 1)), "share",
           answers);
  }
};

class Bench {
 public:
  Bench(const SpecBench& bench, Relay& relay, const sched::Limits& limits, const core::KvLayout& layout,
        const core::DraftProfile& draft)
      : bench_(bench), plain_({"plain", "none"}, relay, limits, layout, clock()) {
    for (Way& way : all_ways(draft))
      lanes_.push_back(std::make_unique<Lane>(std::move(way), relay, limits, layout, clock()));
  }

  Status measure(std::int32_t batch, std::vector<Case>& cases) {
    const auto rounds = std::max(1, static_cast<int>(bench_.scale * (batch == 1 ? 8 : batch <= 4 ? 4 : 2)));
    std::map<std::string, Tally> tallies;
    std::vector<double> plain_rates, repeating_rates;
    for (int round = -1; round < rounds; ++round) {  // the first warms up
      new_tokens_ = round < 0 ? std::min(bench_.new_tokens, kWarmupTokens) : bench_.new_tokens;
      const std::int32_t first = std::max(round, 0) * batch;
      for (const bool repeating : {false, true}) {
        std::vector<double>& rates = repeating ? repeating_rates : plain_rates;
        LEVADA_RETURN_IF_ERROR(measure_round(batch, first, repeating, rates, tallies));
      }
      if (round < 0) tallies.clear(), plain_rates.clear(), repeating_rates.clear();
    }
    const std::string suffix = "_b" + std::to_string(batch);
    cases.push_back(summarize_rates("plain" + suffix, plain_rates, "tok/s"));
    cases.push_back(summarize_rates("plain_repeating" + suffix, repeating_rates, "tok/s"));
    for (const auto& lane : lanes_) tallies[lane->way().name].report(lane->way().name + suffix, cases);
    return {};
  }

 private:
  const Clock& clock() const { return bench_.clock == nullptr ? system_clock_ : *bench_.clock; }
  std::vector<core::Request> requests(std::int32_t batch, std::int32_t first, bool repeating) {
    const std::vector<Tokens>& prompts = repeating ? bench_.repeating : bench_.prompts;
    std::vector<core::Request> made;
    for (std::int32_t i = first; i < first + batch; ++i) {
      core::Request& request = made.emplace_back();
      request.id = core::RequestId{next_id_++};
      request.prompt = prompts[static_cast<std::size_t>(i) % prompts.size()];
      request.sampling.temperature = 0;
      request.sampling.max_new_tokens = new_tokens_;
      request.sampling.ignore_eos = repeating;
    }
    return made;
  }
  // plain, a way, plain, another way, plain ..
  Status measure_round(std::int32_t batch, std::int32_t first, bool repeating, std::vector<double>& plain_rates,
                       std::map<std::string, Tally>& tallies) {
    LEVADA_ASSIGN_OR_RETURN(Run before, plain_.run(requests(batch, first, repeating), {}));
    plain_rates.push_back(before.rate);
    std::vector<Tokens> known;
    for (const auto& [id, answer] : before.answers) known.push_back(answer);
    double rate_before = before.rate;
    for (const auto& lane : lanes_) {
      if (lane->way().repeating != repeating) continue;
      LEVADA_ASSIGN_OR_RETURN(const Run run, lane->run(requests(batch, first, repeating), known));
      LEVADA_ASSIGN_OR_RETURN(const Run after, plain_.run(requests(batch, first, repeating), {}));
      plain_rates.push_back(after.rate);
      tallies[lane->way().name].add(run, known, (rate_before + after.rate) / 2);
      rate_before = after.rate;
    }
    return {};
  }

  const SpecBench& bench_;
  const SystemClock system_clock_;
  std::uint64_t next_id_ = 1;
  std::int32_t new_tokens_ = 0;
  Lane plain_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace

Result<std::vector<Case>> run_spec_bench(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool,
                                         const SpecBench& bench) {
  if (bench.prompts.empty() || bench.repeating.empty()) return invalid_argument("the spec bench needs prompts");
  const core::ModelInfo info = model->info();
  const core::KvLayout layout = model->kv_layout();
  const sched::Limits limits{info.context_length_tokens, pool->pages(), info.vocab_size,
                             bench.eos.empty() ? info.eos_token_ids : bench.eos};
  engine::Worker worker(std::move(model), std::move(pool));
  core::DraftProfile draft;
  if (!bench.draft.empty()) {
    LEVADA_ASSIGN_OR_RETURN(const std::shared_ptr<const model::Draft> loaded, worker.model().load_draft(bench.draft));
    draft = {core::DraftVersion{1}, bench.draft.string(), static_cast<std::int32_t>(loaded->config().block_size),
             std::string(to_string(loaded->config().kind))};
    worker.offer_draft(draft.version, loaded);
  }
  Relay relay(worker);
  Bench turns(bench, relay, limits, layout, draft);
  std::vector<Case> cases;
  for (const std::int32_t batch : bench.batches) LEVADA_RETURN_IF_ERROR(turns.measure(batch, cases));
  return cases;
}

}  // namespace levada::bench
