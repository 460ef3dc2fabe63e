// What drafts are worth in service, and which of them serves: the second half of a round.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "up/flywheel.h"
#include "up/flywheel_history.h"

namespace levada::up {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMostHistoryBytes = 4 << 20;  // some thousand rounds

Json json_of(const Measured& measured) {
  return {{"prompts", measured.prompts},
          {"accept_length", measured.accept_length},
          {"ci95", measured.ci95},
          {"tokens_per_s", measured.tokens_per_s}};
}

std::string text_of(const Measured& measured) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f ± %.2f tokens a step, %.0f tokens/s", measured.accept_length, measured.ci95,
                measured.tokens_per_s);
  return text;
}

}  // namespace

const Candidate* best_of(const std::vector<Candidate>& candidates, const Candidate& served,
                         const recipe::FlywheelSection& rules) {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates) {
    const Measured& got = candidate.held_out;
    if (got.accept_length <= served.held_out.accept_length + rules.min_gain) continue;
    if (got.tokens_per_s < served.held_out.tokens_per_s * rules.min_speed) continue;
    if (best == nullptr || got.accept_length > best->held_out.accept_length) best = &candidate;
  }
  return best;
}

Result<Measured> Flywheel::measure(const std::vector<std::vector<std::int32_t>>& prompts) {
  Measured measured;
  std::vector<double> lengths;
  double tokens = 0, seconds = 0;
  for (const std::vector<std::int32_t>& prompt : prompts) {
    if (pause_.stopped()) return Status(StatusCode::kAborted, "stopped");
    LEVADA_ASSIGN_OR_RETURN(const DraftedAnswer answer,
                            client_.answer(prompt, setup_.recipe.flywheel->eval_max_tokens));
    lengths.push_back(answer.accept_length());
    tokens += static_cast<double>(answer.tokens);
    seconds += answer.seconds;
  }
  const auto count = static_cast<double>(lengths.size());
  if (lengths.empty()) return measured;
  double sum = 0, squares = 0;
  for (const double length : lengths) sum += length;
  measured.accept_length = sum / count;
  for (const double length : lengths) squares += std::pow(length - measured.accept_length, 2);
  if (count > 1) measured.ci95 = 1.96 * std::sqrt(squares / (count - 1) / count);
  measured.prompts = static_cast<std::int64_t>(lengths.size());
  measured.tokens_per_s = seconds > 0 ? tokens / seconds : 0;
  return measured;
}

bool Flywheel::is_current(const Candidate& candidate) const {
  return candidate.held_out.prompts == std::ssize(held_out_) &&
         candidate.extra.prompts == std::ssize(setup_.eval_prompts);
}

Status Flywheel::measure_served(Candidate& candidate) {
  const std::string& folder = candidate.folder;
  LEVADA_ASSIGN_OR_RETURN(const ServedDrafts drafts, client_.list());
  if (folder.empty() && drafts.serving) LEVADA_RETURN_IF_ERROR(client_.unload().status());
  if (!folder.empty() && (!drafts.serving || drafts.serving->path != folder)) {
    LEVADA_RETURN_IF_ERROR(client_.load(folder, fs::path(folder).filename().string()).status());
  }
  LEVADA_ASSIGN_OR_RETURN(candidate.held_out, measure(held_out_));
  LEVADA_ASSIGN_OR_RETURN(candidate.extra, measure(setup_.eval_prompts));
  return {};
}

Status Flywheel::promote(const std::vector<Candidate>& candidates) {
  const Candidate* best = best_of(candidates, state_.served, *setup_.recipe.flywheel);
  const bool promoted = best != nullptr;
  const std::vector<LiveSample> trained = read_samples(round_folder(state_.round) / "train.jsonl");
  std::string told = promoted ? best->id + ", " + text_of(best->held_out) : "";
  for (const Candidate& candidate : candidates) {
    if (!promoted) told += (told.empty() ? "" : "; ") + candidate.id + ", " + text_of(candidate.held_out);
  }
  say((promoted ? "promoted " : "not promoted: ") + told + " (in service: " + text_of(state_.served.held_out) +
      "; n-grams: " + text_of(state_.ngram.held_out) + ")");
  LEVADA_RETURN_IF_ERROR(append_history(candidates, promoted ? best->id : "", std::ssize(trained)));
  // The old one takes over first, so that the server's way back leads to it and not to a draft that was only measured.
  LEVADA_RETURN_IF_ERROR(restore_service());
  State next = state_;
  if (promoted) {
    next.before = std::exchange(next.promoted, best->folder);
    next.served = *best;
  }
  if (!trained.empty()) next.last_sample = trained.back().task_id.substr(trained.back().task_id.find('-') + 1);
  next.samples_seen += std::ssize(trained);
  next.without_promotion = promoted ? 0 : state_.without_promotion + 1;
  next.failures = 0;
  next.round = state_.round + 1;
  state_ = std::move(next);
  LEVADA_RETURN_IF_ERROR(save_state());
  return restore_service();
}

// Told before the state says so: a kill in between repeats a line, and loses none.
Status Flywheel::append_history(const std::vector<Candidate>& candidates, const std::string& promoted,
                                std::int64_t samples) const {
  const auto seconds = [](std::int64_t us) { return static_cast<double>(us) / 1e6; };
  const auto line_of = [&](const Candidate& candidate) {
    Json json = json_of(candidate.held_out);
    if (candidate.extra.prompts > 0) json["eval_prompts"] = json_of(candidate.extra);
    return json;
  };
  double train_s = 0;  // of the launcher that brought the round to its end
  std::ifstream(round_folder(state_.round) / "trained") >> train_s;
  Json line = {{"round", state_.round}, {"unix_s", setup_.unix_s()},
               {"samples", samples},    {"samples_seen", state_.samples_seen + samples},
               {"train_s", train_s},    {"measure_s", seconds(clock_.now_us() - measuring_since_us_)}};
  line["before"] = line_of(state_.served);
  line["ngram"] = line_of(state_.ngram);
  for (const Candidate& candidate : candidates) line["drafts"][candidate.id] = line_of(candidate);
  line["promoted"] = promoted.empty() ? Json() : Json(promoted);
  const fs::path file = folder_ / "flywheel.jsonl";
  LEVADA_RETURN_IF_ERROR(shorten_history(file, kMostHistoryBytes));
  std::ofstream out(file, std::ios::binary | std::ios::app);
  out << line.dump() + "\n";
  return out.flush() ? Status() : unavailable("cannot write " + file.string());
}

void Flywheel::forget_old() const {
  std::error_code error;
  std::set<std::string> kept{state_.promoted, state_.before};
  for (const auto& entry : fs::directory_iterator(folder_ / "drafts", error)) {
    const std::int64_t round = std::atoll(entry.path().filename().c_str());
    if (round < state_.round - 1 && kept.count(entry.path().string()) == 0) fs::remove_all(entry.path(), error);
  }
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("round-")) continue;
    if (std::atoll(name.c_str() + 6) < state_.round - setup_.recipe.flywheel->keep_rounds) {
      fs::remove_all(entry.path(), error);
    }
  }
}

}  // namespace levada::up
