// Composes one serving process. Construction order is destruction order reversed: device, model, worker, server,
// outbox, scheduler, drafts, api.

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "cli/banner.h"
#include "cli/capture_setup.h"
#include "cli/command.h"
#include "cli/draft_desk.h"
#include "cli/engine_setup.h"
#include "cli/model_locator.h"
#include "cli/server_options.h"
#include "cli/sglang_compat.h"
#include "cli/signal_watch.h"
#include "recipe/command_line.h"
#include "recipe/recipe.h"
#include "sched/scheduler.h"
#include "serve/api.h"

namespace levada::cli {
namespace {

Result<std::string> read_template(const std::string& file) {
  constexpr std::uintmax_t kMaxBytes = 1 << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return not_found(file + " is not a file", "chat_template");
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  if (error || bytes > kMaxBytes) {
    return invalid_argument(file + " is larger than a template may be (" + std::to_string(kMaxBytes) + " bytes)",
                            "chat_template");
  }
  std::ifstream in(file, std::ios::binary);
  std::string source(bytes, '\0');
  if (!in.read(source.data(), static_cast<std::streamsize>(bytes))) {
    return not_found("cannot read " + file, "chat_template");
  }
  return source;
}

// The tokenizer's own template unless a file is named; null when there is neither.
Result<std::unique_ptr<text::ChatTemplate>> open_chat_template(const serve::Options& options,
                                                               const text::Tokenizer& tokenizer) {
  std::string source = tokenizer.chat_template();
  if (!options.chat_template.empty()) {
    LEVADA_ASSIGN_OR_RETURN(source, read_template(options.chat_template));
  }
  if (source.empty()) return std::unique_ptr<text::ChatTemplate>();
  auto parsed = text::ChatTemplate::parse(source);
  if (parsed.ok()) return parsed;
  const std::string whose = options.chat_template.empty() ? "the tokenizer's own" : options.chat_template;
  return Status(parsed.status().code(), whose + ": " + parsed.status().message());
}

sched::Limits limits_of(const Engine& engine, const text::Tokenizer& tokenizer) {
  const core::ModelInfo& info = engine.model->info();
  sched::Limits limits;
  // What a request may hold is bounded by the pool too; clients are told the effective number.
  const std::int64_t pool_tokens = std::int64_t{engine.pool->pages()} * engine.pool->layout().page_size_tokens();
  limits.context_length_tokens =
      static_cast<std::int32_t>(std::min<std::int64_t>(info.context_length_tokens, pool_tokens));
  limits.total_pages = engine.pool->pages();
  limits.vocab_size = info.vocab_size;
  limits.eos_token_ids = info.eos_token_ids;
  if (limits.eos_token_ids.empty() && tokenizer.eos()) limits.eos_token_ids.push_back(*tokenizer.eos());
  return limits;
}

DraftDesk::Ground drafts_ground(engine::Worker& worker, sched::Scheduler& scheduler) {
  DraftDesk::Ground ground;
  ground.load = [&worker](const std::filesystem::path& folder) { return worker.model().load_draft(folder); };
  ground.offer = [&worker](core::DraftVersion version, std::shared_ptr<const model::Draft> draft) {
    worker.offer_draft(version, std::move(draft));
  };
  ground.withdraw = [&worker](core::DraftVersion version) { worker.withdraw_draft(version); };
  ground.use = [&scheduler](core::DraftProfile profile, std::function<void()> done) {
    scheduler.use_draft(std::move(profile), std::move(done));
  };
  ground.inspect = [&scheduler](std::function<void(const sched::Snapshot&)> job) { scheduler.inspect(std::move(job)); };
  ground.unix_s = [] { return static_cast<std::int64_t>(std::time(nullptr)); };
  return ground;
}

// Null unless there is room for drafts; with the one to start with, if there is one.
Result<std::unique_ptr<DraftDesk>> open_drafts(const engine::Options& options, engine::Worker& worker,
                                               sched::Scheduler& scheduler) {
  LEVADA_ASSIGN_OR_RETURN(const std::optional<model::DraftRoom> room, draft_room(options));
  std::unique_ptr<DraftDesk> desk;
  if (!room) return desk;
  desk = std::make_unique<DraftDesk>(drafts_ground(worker, scheduler), *room);
  if (const std::string& path = options.speculative_draft_model_path; !path.empty()) {
    if (const Status begun = desk->begin(path); !begun.ok()) {
      return Status(begun.code(), begun.message(), "speculative_draft_model_path");
    }
  }
  return desk;
}

// A draft that nobody would ask, and a drafter that has none.
Status check_speculation(const ServerOptions& options) {
  const std::string& algorithm = options.sched.speculative_algorithm;
  const bool draft = !options.engine.speculative_draft_model_path.empty();
  const bool room = draft || !options.engine.speculative_draft_room.empty();
  const bool by_model = algorithm == "DFLASH" || algorithm == "EAGLE3";
  if (by_model && !room) {
    return invalid_argument("is needed by --speculative-algorithm " + algorithm +
                                " (or --speculative-draft-room, for a draft that comes later)",
                            "speculative_draft_model_path");
  }
  if (by_model) {
    LEVADA_ASSIGN_OR_RETURN(const auto kept, draft_room(options.engine));
    if (to_string(kept->kind) != algorithm) {
      return invalid_argument(
          "is " + algorithm + ", the draft's config.json says " + std::string(to_string(kept->kind)),
          "speculative_algorithm");
    }
  }
  if (draft && (algorithm == "NGRAM" || algorithm == "none")) {
    return invalid_argument("is never asked with --speculative-algorithm " + algorithm + ": leave one of them out",
                            "speculative_draft_model_path");
  }
  return {};
}

Status serve(const ServerOptions& options, const OptionTable& table, SignalWatch& signals) {
  LEVADA_RETURN_IF_ERROR(serve::check_options(options.serve));
  LEVADA_RETURN_IF_ERROR(check_speculation(options));
  SystemClock clock;
  const std::string served_name =
      options.serve.served_model_name.empty() ? options.engine.model_path : options.serve.served_model_name;
  Metrics metrics({{"model_name", served_name}});
  // The port is taken first: a second server on it should fail before it loads a model.
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<http::Server> server,
                          http::Server::listen(serve::http_options(options.serve), metrics));
  // Small files before large ones: what is wrong with them should be said before the weights are read.
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path model_path, locate_model(options.engine.model_path));
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, open_tokenizer(model_path, options.engine));
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<text::ChatTemplate> chat_template,
                          open_chat_template(options.serve, *tokenizer));
  LEVADA_ASSIGN_OR_RETURN(Engine engine, open_engine(options.engine));

  const sched::Limits limits = limits_of(engine, *tokenizer);
  serve::ServedModel served{engine.model->info(), limits.context_length_tokens, tokenizer.get(), chat_template.get()};
  served.info.path = options.engine.model_path;
  served.tokenizer_folder = tokenizer_folder(model_path, options.engine);
  const core::KvLayout layout = engine.model->kv_layout();
  serve::ServerFacts facts{serve::arguments_of(table), engine.model->backend(), version(), std::time(nullptr)};

  LEVADA_ASSIGN_OR_RETURN(const CaptureSetup capture,
                          open_capture(options.capture, options.store, engine.model->info(), clock, metrics));
  if (capture.ground) {
    facts.capture = [ground = capture.ground.get()] { return serve::capture_facts(*ground); };
    facts.control = capture.store->control();
    facts.before_metrics = [store = capture.store.get()] { store->update_metrics(); };
  }
  std::unique_ptr<serve::LiveSamples> samples;
  if (!options.serve.live_samples_dir.empty()) {
    const serve::LiveSamplesOptions kept{options.serve.live_samples_dir, options.serve.live_samples_rate,
                                         options.serve.live_samples_bytes};
    LEVADA_ASSIGN_OR_RETURN(samples, serve::LiveSamples::open(kept, metrics));
  }
  engine::Worker worker(std::move(engine.model), std::move(engine.pool), capture.publisher.get());
  serve::Outbox outbox(*server);
  sched::Scheduler scheduler(options.sched, limits, layout, worker, outbox, tokenizer.get(), clock, metrics);
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<DraftDesk> drafts, open_drafts(options.engine, worker, scheduler));
  const serve::Api api(options.serve, served, std::move(facts),
                       {*server, outbox, scheduler, clock, metrics, capture.ground.get(), drafts.get(), samples.get()});

  const Thread brain("levada-sched", [&] { scheduler.run(); });
  // run() below returns only through this stop(), so joining the scheduler's thread never waits for long.
  signals.on_stop([&] {
    scheduler.stop();
    server->stop();
  });
  const Ready ready{options.serve.host, server->port(), served_name, chat_template != nullptr,
                    !options.serve.api_key.empty()};
  std::fputs(ready_text(ready).c_str(), stdout);
  std::fflush(stdout);
  server->run();
  signals.on_stop({});
  return {};
}

}  // namespace

int serve_command(Words words) {
  ServerOptions options;
  OptionTable table;
  describe(table, options);
  const bool as_sglang = asks_for_sglang(words);
  if (as_sglang) {
    if (const Status taken = take_sglang_environment(table); !taken.ok()) return report(taken);
  }
  Result<recipe::CommandLine> line =
      recipe::parse_command_line(words, table, recipe::Overrides::kApply,
                                 as_sglang ? recipe::UnknownFlags::kCollect : recipe::UnknownFlags::kRefuse);
  if (!line.ok()) return report(line.status());
  if (const Status taken = take_speculative_flags(line->unknown, table); !taken.ok()) return report(taken);
  if (const Status passed = pass_over(line->unknown); !passed.ok()) return report(passed);
  if (line->help) {
    std::printf("usage: levada serve [--recipe FILE] [--set room.name=value] [flags]\n%s",
                recipe::print_help(table).c_str());
    return kExitOk;
  }
  if (!line->positionals.empty()) {
    return report(invalid_argument("serve takes flags only, got '" + line->positionals.front() + "'"));
  }
  const Result<LogLevel> level = parse_log_level(options.log_level);
  if (!level.ok()) return report(level.status());
  set_log_level(*level);
  SignalWatch signals;
  const Status status = serve(options, table, signals);
  return status.ok() ? kExitOk : report(status);
}

}  // namespace levada::cli
