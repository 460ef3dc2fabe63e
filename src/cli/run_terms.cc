#include "cli/run_terms.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <span>

#include "base/durable_file.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/mapped_file.h"
#include "cli/run_setup.h"
#include "producer/prompt_file.h"

namespace levada::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileName = "terms.txt";
constexpr std::size_t kMostTold = 4;
constexpr std::size_t kLongestTold = 80;  // bytes of a value

std::string on_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Result<RunTerms> read_terms(const fs::path& file) {
  RunTerms terms;
  std::ifstream in(file, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) return data_loss(file.string() + " is damaged: levada up --fresh trains anew");
    terms.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return terms;
}

std::string told(const std::string& value) {
  return value.size() <= kLongestTold ? value : value.substr(0, kLongestTold) + "…";
}

// "b4.learning_rate was 0.001 and is 0.5; …", empty if nothing differs.
std::string differences(const RunTerms& before, const RunTerms& now) {
  std::map<std::string, std::pair<std::string, std::string>> values;
  for (const auto& [name, value] : before) values[name].first = value;
  for (const auto& [name, value] : now) values[name].second = value;
  std::string text;
  std::size_t count = 0;
  for (const auto& [name, both] : values) {
    if (both.first == both.second || ++count > kMostTold) continue;
    text += (text.empty() ? "" : "; ") + name + " was " + told(both.first.empty() ? "not there" : both.first) +
            " and is " + told(both.second.empty() ? "not there" : both.second);
  }
  if (count > kMostTold) text += "; and " + std::to_string(count - kMostTold) + " more";
  return text;
}

// A checkpoint of a consumer of this recipe, left in its output folder.
std::string checkpoint_in(const recipe::FanoutRecipe& recipe) {
  for (const recipe::Consumer& consumer : recipe.consumers) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(fs::path(recipe.output_dir) / consumer.consumer_id, error)) {
      if (entry.path().filename().string().find("-step") != std::string::npos) return entry.path().string();
    }
  }
  return {};
}

}  // namespace

Result<RunTerms> run_terms_of(const recipe::FanoutRecipe& recipe) {
  LEVADA_ASSIGN_OR_RETURN(const MappedFile prompts, MappedFile::open(recipe.data.prompts()));
  LEVADA_ASSIGN_OR_RETURN(const producer::Options producer, producer_options_of(recipe));
  RunTerms terms{{"run_id", recipe.run_id},
                 {"model.target_model_path", producer.target_model},
                 {"levada.target_layer_ids", producer.aux_layer_ids},
                 {"data (hash of the prompts file)", hex64(hash64(prompts.bytes()))},
                 {"data.max_prompts", std::to_string(producer.max_prompts)},
                 {"data.max_length", std::to_string(producer.max_length)},
                 {"levada.answer_max_tokens", std::to_string(producer.max_answer_tokens)},
                 {"training.num_epochs", std::to_string(producer.epochs)},
                 {"training.prompt_seed", std::to_string(producer.prompt_seed)}};
  for (const recipe::Consumer& consumer : recipe.consumers) {
    LEVADA_ASSIGN_OR_RETURN(const model::DraftConfig draft, draft_config_of(recipe, consumer));
    for (auto& [name, value] : training_terms(trainer_options_of(recipe, consumer), draft)) {
      terms.emplace_back(consumer.consumer_id + "." + name, on_one_line(std::move(value)));
    }
  }
  return terms;
}

Status agree_on_terms(const recipe::FanoutRecipe& recipe, const RunTerms& terms) {
  const fs::path file = fs::path(recipe.disaggregated.control_dir) / kFileName;
  if (fs::exists(file)) {
    LEVADA_ASSIGN_OR_RETURN(const RunTerms before, read_terms(file));
    const std::string differs = differences(before, terms);
    if (differs.empty()) return {};
    return Status(
        StatusCode::kFailedPrecondition,
        recipe.disaggregated.control_dir + " holds another run: " + differs +
            "; take the old recipe to go on with it, another control_dir and output_dir to keep it, or --fresh "
            "to train anew",
        "control_dir");
  }
  if (const std::string checkpoint = checkpoint_in(recipe); !checkpoint.empty()) {
    return Status(StatusCode::kFailedPrecondition,
                  "holds " + checkpoint + " of an earlier run, of which " + recipe.disaggregated.control_dir +
                      " knows nothing: name another output_dir, or --fresh to train anew",
                  "output_dir");
  }
  std::string text;
  for (const auto& [name, value] : terms) text += name + "=" + value + "\n";
  const std::string_view whole = text;
  return replace_file(file, std::span(&whole, 1));
}

Status check_before_start(const recipe::FanoutRecipe& recipe) {
  for (const recipe::Consumer& consumer : recipe.consumers) {
    LEVADA_ASSIGN_OR_RETURN(const model::DraftConfig draft, draft_config_of(recipe, consumer));
    LEVADA_RETURN_IF_ERROR(model::check(draft, "the draft of " + consumer.consumer_id));
  }
  LEVADA_ASSIGN_OR_RETURN(const producer::Options producer, producer_options_of(recipe));
  if (recipe.flywheel) {  // its prompts are what people will ask
    const auto& more = recipe.flywheel->eval_prompts;
    return more ? producer::read_prompts(*more, producer.target_vocabulary).status() : Status();
  }
  return producer::read_prompts(producer.prompts, producer.target_vocabulary).status();
}

}  // namespace levada::cli
