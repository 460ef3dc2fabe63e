#include "up/flywheel.h"

#include <poll.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "base/durable_file.h"
#include "up/child_process.h"
#include "up/role_output.h"
#include "up/run_folder.h"

namespace levada::up {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kLookEveryUs = 1'000'000;
constexpr std::int64_t kMaxFailures = 3;  // of a round; then it is given up
constexpr const char* kConsumers = "deployment.disaggregated.windowed_fanout.consumers.";

http::HttpUrl url_of(const recipe::FanoutRecipe& recipe) {
  return {"127.0.0.1", static_cast<std::uint16_t>(recipe.managed_local.capture_servers.front().port)};
}

Status write_whole(const fs::path& file, const std::string& text) {
  const std::string_view whole = text;
  return replace_file(file, std::span(&whole, 1));
}

std::string joined_lines(const std::vector<LiveSample>& samples) {
  std::string text;
  for (const LiveSample& sample : samples) text += sample.line + "\n";
  return text;
}

// A sample that an earlier round had captured is another sample in this one: the server would not write the old one again.
std::string lines_of_round(const std::vector<LiveSample>& samples, std::int64_t round) {
  const std::string mark = "r" + std::to_string(round) + "-";
  std::string text;
  for (const LiveSample& sample : samples) {
    std::string line = sample.line;
    line.insert(line.find(sample.task_id), mark);
    text += line + "\n";
  }
  return text;
}

std::vector<std::vector<std::int32_t>> prompts_of(const std::vector<LiveSample>& samples) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const LiveSample& sample : samples) {
    prompts.emplace_back(sample.input_ids.begin(), sample.input_ids.begin() + sample.prompt_tokens);
  }
  return prompts;
}

// Samples of a step of every trainer.
std::int64_t quantum_of(const recipe::FanoutRecipe& recipe) {
  std::int64_t all = recipe.training.quantum() * recipe.trainer.nproc_per_node;
  for (const recipe::Consumer& consumer : recipe.consumers) all = std::lcm(all, consumer.quantum());
  return all;
}

Json json_of(const Measured& measured) {
  return {{"prompts", measured.prompts},
          {"accept_length", measured.accept_length},
          {"ci95", measured.ci95},
          {"tokens_per_s", measured.tokens_per_s}};
}
Json json_of(const Candidate& candidate) {
  return {{"id", candidate.id},
          {"folder", candidate.folder},
          {"held_out", json_of(candidate.held_out)},
          {"extra", json_of(candidate.extra)}};
}

Measured measured_of(const Json& json) {
  return {json.at("prompts").get<std::int64_t>(), json.at("accept_length").get<double>(), json.at("ci95").get<double>(),
          json.at("tokens_per_s").get<double>()};
}
Candidate candidate_of(const Json& json) {
  return {json.at("id").get<std::string>(), json.at("folder").get<std::string>(), measured_of(json.at("held_out")),
          measured_of(json.at("extra"))};
}

}  // namespace

Flywheel::Flywheel(Setup setup, const Clock& clock, Pause& pause)
    : setup_(std::move(setup)),
      folder_(fs::absolute(setup_.recipe.flywheel_folder())),
      clock_(clock),
      pause_(pause),
      client_(url_of(setup_.recipe), setup_.server_key),
      started_us_(clock.now_us()) {}

fs::path Flywheel::round_folder(std::int64_t round) const { return folder_ / ("round-" + std::to_string(round)); }

bool Flywheel::paused() const {
  std::error_code error;
  return fs::exists(folder_ / "pause", error);
}

void Flywheel::say(const std::string& text) {
  if (setup_.tell) setup_.tell(StateEvent{"round " + std::to_string(state_.round) + ": " + text});
}

Status Flywheel::load_state() {
  std::error_code error;
  fs::create_directories(folder_ / "drafts", error);
  held_out_ = prompts_of(read_samples(folder_ / "held-out.jsonl"));
  std::ifstream in(folder_ / "state.json");
  if (!in) return {};
  const Json json = Json::parse(in, nullptr, false);
  try {
    state_.round = json.at("round").get<std::int64_t>();
    state_.samples_seen = json.at("samples_seen").get<std::int64_t>();
    state_.without_promotion = json.at("without_promotion").get<std::int64_t>();
    state_.failures = json.at("failures").get<std::int64_t>();
    state_.last_sample = json.at("last_sample").get<std::string>();
    state_.promoted = json.at("promoted").get<std::string>();
    state_.before = json.at("before").get<std::string>();
    state_.served = candidate_of(json.at("served"));
    state_.ngram = candidate_of(json.at("ngram"));
  } catch (const Json::exception& damage) {
    return data_loss((folder_ / "state.json").string() + ": " + damage.what() + "; delete it to begin anew");
  }
  return {};
}

Status Flywheel::save_state() const {
  const Json json = {{"round", state_.round},
                     {"samples_seen", state_.samples_seen},
                     {"without_promotion", state_.without_promotion},
                     {"failures", state_.failures},
                     {"last_sample", state_.last_sample},
                     {"promoted", state_.promoted},
                     {"before", state_.before},
                     {"served", json_of(state_.served)},
                     {"ngram", json_of(state_.ngram)}};
  return write_whole(folder_ / "state.json", json.dump(1) + "\n");
}

bool Flywheel::over() const {
  const recipe::FlywheelSection& rules = *setup_.recipe.flywheel;
  const double seconds = static_cast<double>(clock_.now_us() - started_us_) / 1e6;
  return (rules.rounds > 0 && state_.round > rules.rounds) ||
         (rules.stop_after > 0 && state_.without_promotion >= rules.stop_after) ||
         (rules.deadline_s > 0 && seconds > rules.deadline_s);
}

Status Flywheel::run() {
  LEVADA_RETURN_IF_ERROR(load_state());
  bool told = false;
  while (!over() && !pause_.stopped()) {
    if (paused()) {
      if (!std::exchange(told, true)) say("paused");
      pause_.wait_us(kLookEveryUs);
      continue;
    }
    told = false;
    const Status status = one_round();
    if (status.ok() || pause_.stopped()) continue;
    // A server or a round that failed may do better next time; what lies in the files stays as it was.
    say("failed: " + status.message());
    pause_.wait_us(5 * kLookEveryUs);
  }
  say(pause_.stopped() ? "stopped" : "all rounds are done");
  return {};
}

Status Flywheel::restore_service() {
  LEVADA_ASSIGN_OR_RETURN(const ServedDrafts drafts, client_.list());
  const std::string served = drafts.serving ? drafts.serving->path : "";
  if (served == state_.promoted) return {};
  if (state_.promoted.empty()) return client_.unload().status();
  return client_.load(state_.promoted, fs::path(state_.promoted).filename().string()).status();
}

Result<bool> Flywheel::prepare_round() {
  if (fs::exists(round_folder(state_.round) / "train.jsonl")) return true;
  const recipe::FlywheelSection& rules = *setup_.recipe.flywheel;
  const Spool spool =
      read_spool(folder_ / "spool", {rules.held_out_share, setup_.recipe.data.max_length},
                 static_cast<std::size_t>(rules.samples_per_round), static_cast<std::size_t>(rules.held_out_prompts));
  std::int64_t fresh = 0;
  for (const LiveSample& sample : spool.train) fresh += sample.task_id > state_.last_sample ? 1 : 0;
  const std::int64_t quantum = quantum_of(setup_.recipe);
  const auto usable = static_cast<std::int64_t>(spool.train.size()) / quantum * quantum;
  if (fresh < std::min(rules.min_samples, rules.samples_per_round) || usable == 0) return false;
  // What is measured on stays the same once there is enough of it, so that rounds compare.
  if (std::ssize(held_out_) < rules.held_out_prompts) {
    if (spool.held_out.empty()) return false;
    held_out_ = prompts_of(spool.held_out);
    LEVADA_RETURN_IF_ERROR(write_whole(folder_ / "held-out.jsonl", joined_lines(spool.held_out)));
  }
  std::error_code error;
  fs::create_directories(round_folder(state_.round), error);
  const std::vector<LiveSample> newest(spool.train.end() - usable, spool.train.end());
  LEVADA_RETURN_IF_ERROR(write_whole(round_folder(state_.round) / "train.jsonl", lines_of_round(newest, state_.round)));
  return true;
}

Status Flywheel::synthesize() {
  std::vector<std::string> words = setup_.synthesize;
  // Its questions take the numbers from the seed on: those of another time must not be asked again.
  constexpr std::int64_t kSeedsASecond = 100'000;
  words.insert(words.end(), {"--seed", std::to_string(setup_.unix_s() * kSeedsASecond)});
  say("the target asks itself");
  LEVADA_ASSIGN_OR_RETURN(const std::optional<int> code, run_child(words, (folder_ / "synthesize.log").string()));
  if (code && *code != 0) return unavailable("levada synthesize ended with " + std::to_string(*code));
  return {};
}

Result<std::optional<int>> Flywheel::run_child(const std::vector<std::string>& words, const std::string& log) {
  LEVADA_ASSIGN_OR_RETURN(RoleOutput output, RoleOutput::open(log));
  LEVADA_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::start(words, {}));
  bool ending = false;
  for (;;) {
    pollfd pipe{child.output(), POLLIN, 0};
    ::poll(&pipe, pipe.fd >= 0 ? 1 : 0, 200);
    if (child.output() >= 0 && !output.drain(child.output(), [](const Event&) {})) child.close_output();
    const std::optional<int> code = child.poll();
    if (code && ending) return std::optional<int>();
    if (code) return code;
    if (!ending && (pause_.stopped() || paused())) {
      ending = true;
      child.signal_group(SIGTERM);
    }
  }
}

// Of the newest round before this one that came to its end; empty if none did.
fs::path Flywheel::last_draft(const std::string& consumer) const {
  for (std::int64_t round = state_.round - 1; round >= 1; --round) {
    const fs::path folder = folder_ / "drafts" / (std::to_string(round) + "-" + consumer);
    if (fs::exists(folder / "config.json")) return folder;
  }
  return {};
}

std::vector<std::string> Flywheel::round_words() const {
  const fs::path folder = round_folder(state_.round);
  std::vector<std::string> words = setup_.up_words;
  const auto set = [&](const std::string& name, const std::string& value) {
    words.insert(words.end(), {"--set", name + "=" + value});
  };
  set("flywheel.round", folder.string());
  // A role that was killed comes back; a round that can't go on fails soon.
  constexpr std::int64_t kMostRestarts = 10;
  set("levada.max_restarts", std::to_string(std::min(setup_.recipe.levada.max_restarts, kMostRestarts)));
  set("data.max_prompts", std::to_string(read_samples(folder / "train.jsonl").size()));
  for (std::size_t i = 0; i < setup_.recipe.consumers.size(); ++i) {
    const fs::path last = last_draft(setup_.recipe.consumers[i].consumer_id);
    if (last.empty()) continue;
    set(std::string(kConsumers) + std::to_string(i) + ".overrides.model.draft_checkpoint_path", last.string());
  }
  words.insert(words.end(), {"--exit-when-done", "--plain", "--summary", (folder / "summary.json").string()});
  return words;
}

Status Flywheel::one_round() {
  LEVADA_RETURN_IF_ERROR(restore_service());
  LEVADA_ASSIGN_OR_RETURN(const bool ready, prepare_round());
  if (!ready) {
    if (!setup_.synthesize.empty()) return synthesize();
    if (std::exchange(waits_in_, state_.round) != state_.round) {
      say("waits until " + std::to_string(setup_.recipe.flywheel->min_samples) +
          " conversations are new: ask the server at " +
          "http://127.0.0.1:" + std::to_string(setup_.recipe.managed_local.capture_servers.front().port) +
          ", or let the target ask itself (flywheel.synthesize)");
    }
    pause_.wait_us(kLookEveryUs);
    return {};
  }
  const std::int64_t started_us = clock_.now_us();
  const fs::path folder = round_folder(state_.round);
  // An earlier launcher of this round may still be taking itself down.
  while (is_held(folder / "control") && pause_.wait_us(kLookEveryUs)) {
  }
  if (!fs::exists(folder / "trained")) {
    say("training on " + std::to_string(read_samples(folder / "train.jsonl").size()) + " samples");
    LEVADA_ASSIGN_OR_RETURN(const std::optional<int> code, run_child(round_words(), (folder / "up.log").string()));
    if (!code) return {};
    if (*code != 0) {
      if (++state_.failures >= kMaxFailures) {
        ++state_.round;
        state_.failures = 0;
      }
      LEVADA_RETURN_IF_ERROR(save_state());
      return unavailable("its run ended with " + std::to_string(*code) + "; see " + (folder / "up.log").string());
    }
    const double seconds = static_cast<double>(clock_.now_us() - started_us) / 1e6;
    LEVADA_RETURN_IF_ERROR(write_whole(folder / "trained", std::to_string(seconds) + "\n"));
  }
  return finish_round();
}

// Its trainers' drafts, moved to where the round's end does not reach them.
std::vector<Candidate> Flywheel::collect_drafts() const {
  std::vector<Candidate> candidates;
  for (const recipe::Consumer& consumer : setup_.recipe.consumers) {
    const fs::path made = round_folder(state_.round) / consumer.consumer_id / "draft";
    const fs::path kept = folder_ / "drafts" / (std::to_string(state_.round) + "-" + consumer.consumer_id);
    std::error_code error;
    if (fs::exists(made)) fs::rename(made, kept, error);
    if (fs::exists(kept / "config.json")) candidates.push_back({consumer.consumer_id, kept.string(), {}, {}});
  }
  return candidates;
}

// Prompts are the same from round to round and answers greedy, so the draft in service and the n-grams are measured once.
Status Flywheel::finish_round() {
  measuring_since_us_ = clock_.now_us();
  std::vector<Candidate> candidates = collect_drafts();
  say("measuring " + std::to_string(candidates.size()) + " drafts on " + std::to_string(held_out_.size()) + " prompts");
  for (Candidate& candidate : candidates) LEVADA_RETURN_IF_ERROR(measure_served(candidate));
  if (!is_current(state_.ngram)) {
    state_.ngram = {"ngram", "", {}, {}};
    LEVADA_RETURN_IF_ERROR(measure_served(state_.ngram));
  }
  if (state_.promoted.empty()) {
    state_.served = state_.ngram;
  } else if (!is_current(state_.served)) {
    state_.served.folder = state_.promoted;
    LEVADA_RETURN_IF_ERROR(measure_served(state_.served));
  }
  LEVADA_RETURN_IF_ERROR(promote(candidates));
  forget_old();
  return {};
}

}  // namespace levada::up
