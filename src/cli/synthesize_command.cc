// `levada synthesize`: lets a serving target talk to itself, so that there is traffic to learn from.
#include <cstdio>

#include "base/log.h"
#include "cli/command.h"
#include "cli/model_locator.h"
#include "cli/signal_watch.h"
#include "producer/synthesis.h"
#include "recipe/command_line.h"
#include "recipe/recipe.h"

namespace levada::cli {
namespace {

struct Options {
  std::string url = "http://127.0.0.1:30000";
  std::string model = "smollm2";
  producer::SynthesisRules rules;
  std::int64_t seed = 42;
};

void describe(OptionTable& table, Options& options) {
  table.begin_room("synthesize");
  table.add("url", &options.url, "the serving process");
  table.add("model", &options.model, "the model it serves: its tokenizer and chat template are read here");
  table.add("questions", &options.rules.questions, "how many to have written and answered").range(1, 1e8);
  table.add("connections", &options.rules.connections, "requests at a time").range(1, 1024);
  table.add("batch", &options.rules.batch, "questions of one request").range(1, 256);
  table.add("temperature", &options.rules.temperature, "of the questions; answers are greedy").range(0.01, 2);
  table.add("min_p", &options.rules.min_p, "of the questions").range(0, 1);
  table.add("max_question_tokens", &options.rules.max_question_tokens, "longest question").range(1, 4096);
  table.add("max_answer_tokens", &options.rules.max_answer_tokens, "longest answer").range(1, 65536);
  table.add("seed", &options.seed, "the same seed asks the same questions").range(0, 1e15);
}

void print(const producer::SynthesisReport& report) {
  std::printf(
      "{\"asked\": %lld, \"answered\": %lld, \"repeated\": %lld, \"too_short\": %lld, \"failed\": %lld, "
      "\"question_tokens\": %lld, \"answer_tokens\": %lld, \"seconds\": %.3f, \"tokens_per_s\": %.0f}\n",
      static_cast<long long>(report.asked), static_cast<long long>(report.answered),
      static_cast<long long>(report.repeated), static_cast<long long>(report.too_short),
      static_cast<long long>(report.failed), static_cast<long long>(report.question_tokens),
      static_cast<long long>(report.answer_tokens), report.seconds,
      static_cast<double>(report.question_tokens + report.answer_tokens) / std::max(report.seconds, 1e-9));
}

Status run(Options& options, SignalWatch& signals) {
  LEVADA_ASSIGN_OR_RETURN(const std::vector<std::string> urls, producer::parse_server_urls(options.url));
  if (urls.size() != 1) return invalid_argument("one server is talked to", "url");
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path model, locate_model(options.model));
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path tokenizer, locate_tokenizer(model, ""));
  LEVADA_ASSIGN_OR_RETURN(const producer::TokenizePrompt tokenize, producer::open_prompt_tokenizer(tokenizer));
  options.rules.seed = static_cast<std::uint64_t>(options.seed);
  StoppablePause pause;
  signals.on_stop([&] { pause.stop(); });
  const auto connect = [&](bool no_capture) {
    std::map<std::string, std::string> headers;
    if (no_capture) headers[producer::kNoCaptureHeader] = "1";
    return producer::http_capture_server(urls[0], "", {}, std::move(headers));
  };
  std::int64_t told = 0;
  const auto on_progress = [&](const producer::SynthesisReport& report) {
    if (report.asked - told < options.rules.questions / 10) return;
    told = report.asked;
    LEVADA_LOG_INFO("synthesis: ", report.asked, " of ", options.rules.questions, " questions, ",
                    report.question_tokens + report.answer_tokens, " tokens");
  };
  const auto report = producer::synthesize(options.rules, tokenize, connect, pause, on_progress);
  signals.on_stop({});
  if (!report.ok()) return report.status();
  print(*report);
  return {};
}

}  // namespace

int synthesize_command(Words words) {
  Options options;
  OptionTable table;
  describe(table, options);
  const auto line = recipe::parse_command_line(words, table, recipe::Overrides::kApply);
  if (!line.ok()) return report(line.status());
  if (line->help) {
    std::printf("usage: levada synthesize [flags]\nlets a serving target ask and answer itself\n%s",
                recipe::print_help(table).c_str());
    return kExitOk;
  }
  SignalWatch signals;
  const Status status = run(options, signals);
  return status.ok() ? kExitOk : report(status);
}

}  // namespace levada::cli
