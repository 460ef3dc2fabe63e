#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "bench/admission_bench.h"
#include "bench/arena_bench.h"
#include "bench/bench.h"
#include "bench/cuda_bench.h"
#include "bench/decode_bench.h"
#include "bench/grammar_bench.h"
#include "bench/http_bench.h"
#include "bench/load.h"
#include "bench/percentile_chart.h"
#include "bench/radix_bench.h"
#include "bench/registry_bench.h"
#include "bench/sampling_bench.h"
#include "bench/sched_bench.h"
#include "bench/spec_bench.h"
#include "bench/spec_prompts.h"
#include "bench/store_bench.h"
#include "bench/train_bench.h"
#include "cli/command.h"
#include "cli/engine_setup.h"
#include "cli/model_locator.h"
#include "recipe/command_line.h"

namespace levada::cli {
namespace {

const std::string kNames =
    "radix, sched, sampling, admission, grammar, decode, spec, http, serving, store, nvlink-arena, registry, train, "
    "cuda-smollm2, "
    "cuda-qwen3-8b";

struct Options {
  bool json = false;
  double scale = 1.0;
  engine::Options engine;
  bench::LoadOptions load;
  std::string request_list, prompts, plot;
  std::int64_t batch = 0, new_tokens = 96;
};

void describe(OptionTable& table, Options& options) {
  table.begin_room("bench");
  table.add("json", &options.json, "print one JSON object instead of a table");
  table.add("scale", &options.scale, "multiplies the number of samples").range(0.001, 1000);
  table.add("request_list", &options.request_list,
            "admission: a file with one request a line, {\"cached\", \"extend\", \"max_new\"}; prints its rounds");
  table.add("draft", &options.engine.speculative_draft_model_path,
            "spec: folder of a DFlash or EAGLE-3 draft to measure, too");
  table.add(
      "prompts", &options.prompts,
      "spec: a file with one user's message a line, or {\"prompt\": …}, {\"messages\": …}; default: some of our own");
  table.add("batch", &options.batch, "spec: requests at once; 0: 1, then 4, then 16").range(0, 64);
  table.add("new_tokens", &options.new_tokens, "spec: of an answer, at most").range(2, 100'000);
  table.add("plot", &options.plot, "spec: file for a picture of speedups and acceptance");
  bench::describe(table, options.load);
  engine::describe(table, options.engine);  // what `decode` runs on, and whose tokenizer `sched` uses
}

// With the model's tokenizer and template, without the model.
Result<std::vector<bench::Case>> run_http(const Options& options) {
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path model, locate_model(options.engine.model_path));
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, open_tokenizer(model, options.engine));
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<text::ChatTemplate> chat_template,
                          text::ChatTemplate::parse(tokenizer->chat_template()));
  return bench::run_http_bench(options.scale, *tokenizer, *chat_template);
}

Result<std::vector<bench::Case>> run_spec(const Options& options) {
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path model, locate_model(options.engine.model_path));
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, open_tokenizer(model, options.engine));
  bench::SpecBench spec;
  spec.draft = options.engine.speculative_draft_model_path;
  spec.scale = options.scale;
  spec.new_tokens = static_cast<std::int32_t>(options.new_tokens);
  if (options.batch > 0) spec.batches = {static_cast<std::int32_t>(options.batch)};
  LEVADA_ASSIGN_OR_RETURN(spec.prompts, bench::chat_prompts(options.prompts, *tokenizer));
  spec.repeating = bench::repeating_prompts(*tokenizer);
  if (tokenizer->eos()) spec.eos = {*tokenizer->eos()};
  LEVADA_ASSIGN_OR_RETURN(Engine engine, open_engine(options.engine));
  LEVADA_ASSIGN_OR_RETURN(std::vector<bench::Case> cases,
                          bench::run_spec_bench(std::move(engine.model), std::move(engine.pool), spec));
  if (!options.plot.empty()) LEVADA_RETURN_IF_ERROR(bench::write_spec_chart(options.plot, cases));
  return cases;
}

Result<std::vector<bench::Case>> run(const std::string& name, const Options& options) {
  if (name == "radix") return bench::run_radix_bench(options.scale);
  if (name == "sampling") return bench::run_sampling_bench(options.scale);
  if (name == "admission") return bench::run_admission_bench(options.scale);
  if (name == "http") return run_http(options);
  if (name == "store") return bench::run_store_bench(options.scale);
  if (name == "nvlink-arena") {
    bench::ArenaBench arena;
    if (options.engine.device != "cuda") arena.device = device::DeviceKind::kCpu;
    return bench::run_arena_bench(arena);
  }
  if (name == "registry") return bench::run_registry_bench(options.scale);
  if (name == "train") return bench::run_train_bench(options.scale, options.engine.device);
  if (name == "sched") {  // with the model's tokenizer, so that turning tokens into text is measured too
    LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path model, locate_model(options.engine.model_path));
    LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, open_tokenizer(model, options.engine));
    return bench::run_sched_bench(options.scale, tokenizer.get());
  }
  if (name == "grammar") {
    LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path model, locate_model(options.engine.model_path));
    LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, open_tokenizer(model, options.engine));
    return bench::run_grammar_bench(options.scale, *tokenizer);
  }
  if (name.starts_with("cuda-")) {  // random weights; text is turned out only by a tokenizer that is named
    std::unique_ptr<text::Tokenizer> tokenizer;
    if (!options.engine.tokenizer_path.empty()) {
      LEVADA_ASSIGN_OR_RETURN(tokenizer, open_tokenizer({}, options.engine));
    }
    return bench::run_cuda_bench(name.substr(5), options.scale, tokenizer.get());
  }
  if (name == "spec") return run_spec(options);
  if (name == "decode") {
    LEVADA_ASSIGN_OR_RETURN(Engine engine, open_engine(options.engine));
    return bench::run_decode_bench(std::move(engine.model), std::move(engine.pool), options.scale);
  }
  return invalid_argument("there is no bench '" + name + "' (known: " + kNames + ")");
}

void print_table(const std::string& name, const std::vector<bench::Case>& cases) {
  std::printf("%s on %s\n", name.c_str(), bench::machine().c_str());
  for (const bench::Case& line : cases) {
    std::printf("  %-28s median %12.3f  p99 %12.3f  %-6s n %lld\n", line.name.c_str(), line.median, line.p99,
                line.unit.c_str(), static_cast<long long>(line.n));
  }
}

// A load on a server that runs somewhere: not cases of ours but what its clients felt.
int run_serving(const Options& options) {
  const Result<bench::LoadResult> result = bench::run_load(options.load);
  if (!result.ok()) return report(result.status());
  const std::string text = options.json ? bench::load_json(options.load, *result) + "\n" : bench::load_table(*result);
  std::fputs(text.c_str(), stdout);
  if (options.load.png.empty()) return kExitOk;
  const Status drawn = bench::write_percentile_chart(
      options.load.png, options.load.dataset + " " + options.load.endpoint, latencies(*result));
  return drawn.ok() ? kExitOk : report(drawn);
}

// The rounds of a list of requests, a line each (S14).
Status print_admission(const std::string& file) {
  std::ifstream in(file);
  if (!in) return not_found("cannot read " + file, "request_list");
  const std::string lines((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  LEVADA_ASSIGN_OR_RETURN(const std::vector<bench::AdmissionInput> inputs, bench::read_admission_inputs(lines));
  LEVADA_ASSIGN_OR_RETURN(const std::vector<bench::AdmissionRound> rounds, bench::run_admission(inputs, {}));
  for (std::size_t i = 0; i < rounds.size(); ++i) std::printf("%s\n", bench::admission_json(i, rounds[i]).c_str());
  return {};
}

}  // namespace

int bench_command(Words words) {
  Options options;
  OptionTable table;
  describe(table, options);
  const Result<recipe::CommandLine> line = recipe::parse_command_line(words, table);
  if (!line.ok()) return report(line.status());
  if (line->help || line->positionals.size() != 1) {
    std::fprintf(line->help ? stdout : stderr, "usage: levada bench NAME [--json] [flags]\nNAME: %s\n%s",
                 kNames.c_str(), recipe::print_help(table).c_str());
    return line->help ? kExitOk : kExitUsage;
  }
  const std::string& name = line->positionals.front();
  if (name == "serving") return run_serving(options);
  if (name == "admission" && !options.request_list.empty()) {
    const Status printed = print_admission(options.request_list);
    return printed.ok() ? kExitOk : report(printed);
  }
  const Result<std::vector<bench::Case>> cases = run(name, options);
  if (!cases.ok()) return report(cases.status());
  if (options.json) {
    std::printf("%s\n", bench::to_json(name, commit(), *cases).c_str());
  } else {
    print_table(name, *cases);
  }
  return kExitOk;
}

}  // namespace levada::cli
