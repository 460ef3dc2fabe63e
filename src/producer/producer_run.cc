#include "producer/producer_run.h"

#include <charconv>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "base/hash.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/metrics.h"
#include "consumer/run_card.h"
#include "producer/plan.h"
#include "producer/prepared_file.h"
#include "registry/registry.h"
#include "registry/registry_server.h"
#include "registry/sql_storage.h"
#include "store/open_store.h"

namespace levada::producer {
namespace {

// A call's body is at most 1 MiB (LIMIT); what is longer than this isn't even read.
constexpr std::size_t kMaxReadBytes = 2 << 20;
constexpr std::int64_t kFirstDescribeTimeoutUs = 5'000'000;
constexpr std::int64_t kServerPauseUs = 500'000;
constexpr std::int64_t kGoodbyeUs = 1'000'000;  // the last answers reach their callers

std::int64_t us(double seconds) { return static_cast<std::int64_t>(seconds * 1e6); }

Result<std::uint64_t> hash_of_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  if (!stream) return unavailable(file.string() + " can't be read");
  const std::string text = content.str();
  return hash64(std::as_bytes(std::span(text)));
}

StoreChoice choice_of(const std::string& transport) {
  if (transport == "shm" || transport == "nvlink") return StoreChoice::kShm;  // by the socket's own URL
  if (transport == "ucx") return StoreChoice::kUcx;
  return transport == "tcp" ? StoreChoice::kTcp : StoreChoice::kAuto;
}

std::uint64_t stored_hash(const std::vector<std::int32_t>& ids) {
  const std::vector<std::int64_t> wide(ids.begin(), ids.end());
  return hash64(std::as_bytes(std::span(wide)));
}

// The whole process as an object, so that each stage is a function and everything ends in the reverse order.
class ProducerProcess {
 public:
  ProducerProcess(const RunRequest& request, std::stop_token stop)
      : request_(request),
        options_(request.options),
        stop_(std::move(stop)),
        on_stop_(stop_, [this] { pause_.stop(); }) {}

  ~ProducerProcess() {
    if (registry_) registry_->stop();
    if (http_) http_->stop(std::chrono::milliseconds(500));
    io_.join();
  }

  Result<fanout::SnapshotReply> run(const Producer::OnProgress& on_progress) {
    LEVADA_ASSIGN_OR_RETURN(urls_, parse_server_urls(options_.server_urls));
    LEVADA_RETURN_IF_ERROR(read_contract());
    LEVADA_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts,
                            read_prompts(options_.prompts, options_.target_vocabulary));
    std::error_code error;
    std::filesystem::create_directories(options_.control_dir, error);
    if (error) return unavailable("control_dir " + options_.control_dir + ": " + error.message());
    LEVADA_RETURN_IF_ERROR(prepare(prompts));
    LEVADA_RETURN_IF_ERROR(learn_hidden_size());
    LEVADA_RETURN_IF_ERROR(plan());
    LEVADA_RETURN_IF_ERROR(open_registry());
    say("capturing");
    auto last = produce(on_progress);
    say_goodbye(last.status());
    return last;
  }

 private:
  void say(const std::string& text) const {
    if (request_.on_state) request_.on_state(text);
  }

  Status read_contract() {
    contract_.store_id = request_.run.store_id;
    contract_.hidden_size = options_.target_hidden_size;
    contract_.dtype = *dtype_named(options_.target_dtype);
    LEVADA_ASSIGN_OR_RETURN(contract_.aux_layer_ids, parse_layer_ids(options_.aux_layer_ids));
    return {};
  }

  Result<MadeFrom> made_from() const {
    LEVADA_ASSIGN_OR_RETURN(const std::uint64_t hash, hash_of_file(options_.prompts));
    return MadeFrom{{"prompts", hex64(hash)},
                    {"max_prompts", std::to_string(options_.max_prompts)},
                    {"max_length", std::to_string(options_.max_length)},
                    {"max_answer_tokens", std::to_string(options_.max_answer_tokens)},
                    {"target_model", options_.target_model}};
  }

  Status prepare(const std::vector<Prompt>& prompts) {
    const std::filesystem::path file = std::filesystem::path(options_.control_dir) / "prepared.jsonl";
    LEVADA_ASSIGN_OR_RETURN(const MadeFrom from, made_from());
    LEVADA_ASSIGN_OR_RETURN(std::optional<Preparation> stored, read_prepared(file, from));
    if (!stored) {
      LEVADA_ASSIGN_OR_RETURN(stored, answer(prompts));
      LEVADA_RETURN_IF_ERROR(check_enough(*stored));
      LEVADA_RETURN_IF_ERROR(write_prepared(file, from, *stored));
    }
    samples_ = std::move(stored->samples);
    LEVADA_LOG_INFO(samples_.size(), " samples of ", stored->offered, " prompts");
    for (const auto& [reason, count] : stored->dropped) LEVADA_LOG_WARNING(count, " prompts left out: ", reason);
    return {};
  }

  // A run's length, its schedules and its end are those of max_prompts: with fewer samples it could never be complete.
  Status check_enough(const Preparation& made) const {
    const auto kept = static_cast<std::int64_t>(made.samples.size());
    if (options_.max_prompts == 0 || kept == options_.max_prompts) return {};
    std::string why = "asks for " + std::to_string(options_.max_prompts) + " samples, " + options_.prompts + " gives " +
                      std::to_string(kept) + " (of " + std::to_string(made.offered) + " prompts";
    for (const auto& [reason, count] : made.dropped) why += ", " + std::to_string(count) + " left out: " + reason;
    return invalid_argument(why + "): lower it or add prompts", "data.max_prompts");
  }

  Result<Preparation> answer(const std::vector<Prompt>& prompts) {
    AnswerRules rules;
    rules.bounds = {options_.max_length, options_.max_answer_tokens};
    rules.max_samples = options_.max_prompts;
    rules.batch = options_.answer_batch;
    rules.timeout_us = us(options_.answer_timeout_s);
    rules.on_progress = [this](std::int64_t kept, std::int64_t wanted) {
      say("answering prompts " + std::to_string(kept) + "/" + std::to_string(wanted));
    };
    TokenizePrompt tokenize;
    const auto is_raw = [](const Prompt& prompt) { return prompt.kind != PromptKind::kTokens; };
    if (std::any_of(prompts.begin(), prompts.end(), is_raw)) {
      LEVADA_ASSIGN_OR_RETURN(tokenize, open_prompt_tokenizer(request_.tokenizer));
    }
    std::vector<std::unique_ptr<CaptureServer>> servers;
    std::vector<CaptureServer*> borrowed;
    for (const std::string& url : std::set<std::string>(urls_.begin(), urls_.end())) {
      servers.push_back(http_capture_server(url, request_.capture_token, stop_));
      borrowed.push_back(servers.back().get());
    }
    return prepare_samples(prompts, rules, tokenize, borrowed, pause_);
  }

  // The first server that answers says it, unless the recipe does.
  Status learn_hidden_size() {
    const std::int64_t until_us = clock_.now_us() + us(options_.server_outage_s);
    for (std::size_t turn = 0; contract_.hidden_size == 0; ++turn) {
      const auto server = http_capture_server(urls_[turn % urls_.size()], request_.capture_token, stop_);
      const auto side = describe_capture(*server, kFirstDescribeTimeoutUs);
      if (side.ok() && side->hidden_size == 0) {
        return invalid_argument("must be given: the server does not say it", "target_hidden_size");
      }
      if (side.ok()) {
        contract_.hidden_size = side->hidden_size;
      } else if (side.status().code() != StatusCode::kUnavailable || clock_.now_us() >= until_us) {
        return side.status();
      } else if (!pause_.wait_us(kServerPauseUs)) {
        return Status(StatusCode::kAborted, "stopped");
      }
    }
    return {};
  }

  Status plan() {
    LEVADA_ASSIGN_OR_RETURN(plan_, make_plan(samples_, {request_.run.run_id, options_.epochs, options_.prompt_seed}));
    auto config = std::make_shared<fanout::RunConfig>(request_.run);
    config->sources = plan_.sources;
    config->source_digest = plan_.source_digest;
    config->contract_digest = contract_digest(
        contract_, {options_.target_model, request_.tokenizer.filename().string(), options_.max_length});
    config->bytes_per_token = contract_.bytes_per_token();
    config->feature_names = {kHiddenStates, kInputIds, kLossMask};
    LEVADA_RETURN_IF_ERROR(fanout::check(*config));
    config_ = std::move(config);
    return {};
  }

  Status open_registry() {
    const registry::RefContext context{config_->run_id,       "dflash",     options_.target_model, "",
                                       options_.target_model, kHiddenStates};
    const auto path = std::filesystem::path(options_.control_dir) / "windowed-capture.sqlite";
    LEVADA_ASSIGN_OR_RETURN(auto storage, registry::open_sqlite_storage(path.string(), context));
    LEVADA_ASSIGN_OR_RETURN(registry_, registry::Registry::open(config_, std::move(storage), clock_));
    http::ServerOptions options;
    options.host = request_.registry_host;
    options.port = request_.registry_port;
    options.max_body_bytes = kMaxReadBytes;
    LEVADA_ASSIGN_OR_RETURN(http_, http::Server::listen(options, metrics_));
    LEVADA_RETURN_IF_ERROR(registry::mount_registry(*http_, *registry_,
                                                    {request_.registry_token, request_.registry_admin_token}, context));
    io_ = Thread("registry-io", [this] { http_->run(); });
    const std::string url = "http://" + request_.registry_host + ":" + std::to_string(http_->port());
    LEVADA_LOG_INFO("the registry of ", config_->total(), " samples listens at ", url);
    return consumer::write_run_card(options_.control_dir, run_card(url));
  }

  consumer::RunCard run_card(const std::string& registry_url) const {
    consumer::RunCard card;
    card.run_id = config_->run_id;
    card.store_id = config_->store_id;
    card.contract_digest = config_->contract_digest;
    card.source_digest = config_->source_digest;
    card.registry_url = registry_url;
    card.total_samples = config_->total();
    card.prompts = static_cast<std::int64_t>(samples_.size());
    card.aux_layer_ids = contract_.aux_layer_ids;
    card.hidden_size = contract_.hidden_size;
    card.dtype = contract_.dtype;
    for (const PreparedSample* sample : plan_.samples) card.input_hashes.push_back(stored_hash(sample->input_ids));
    return card;
  }

  Result<fanout::SnapshotReply> produce(const Producer::OnProgress& on_progress) {
    registry::LocalApi api(*registry_);
    Producer::Options options;
    options.run_id = config_->run_id;
    options.server_urls = urls_;
    options.concurrency = options_.producer_concurrency;
    options.capture_batch = options_.capture_batch_size;
    options.skips_failed = config_->skip_failed > 0;
    options.capture_timeout_us = us(options_.capture_timeout_s);
    options.check_interval_us = us(options_.server_check_s);
    options.server = {options_.server_failures, us(options_.server_outage_s), choice_of(options_.store_transport)};
    Producer producer(
        options, api, contract_, plan_.samples, clock_,
        [this](const std::string& url) { return http_capture_server(url, request_.capture_token, stop_); },
        [this](const std::string& url) { return store::open_store(url, request_.capture_token, {}, clock_); });
    return producer.run(stop_, on_progress);
  }

  // Consumers of a failed run hear of it with their next heartbeat; those of a clean one have had their last answer.
  void say_goodbye(const Status& end) {
    if (end.code() == StatusCode::kAborted) return;
    pause_.wait_us(end.ok() ? kGoodbyeUs : kGoodbyeUs + config_->times.heartbeat_us);
  }

  const RunRequest& request_;
  const Options& options_;
  std::stop_token stop_;
  StoppablePause pause_;
  std::stop_callback<std::function<void()>> on_stop_;
  SystemClock clock_;
  Metrics metrics_;
  std::vector<std::string> urls_;
  CaptureContract contract_;
  std::vector<PreparedSample> samples_;
  Plan plan_;
  std::shared_ptr<const fanout::RunConfig> config_;
  std::unique_ptr<registry::Registry> registry_;
  std::unique_ptr<http::Server> http_;
  Thread io_;
};

}  // namespace

Result<std::vector<std::int32_t>> parse_layer_ids(const std::string& text) {
  const auto bad = [&] {
    return invalid_argument("must be layer numbers with commas between them, each once, got \"" + text + "\"",
                            "aux_layer_ids");
  };
  std::vector<std::int32_t> ids;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    std::int32_t id = 0;
    const char* first = text.data() + begin;
    const char* last = text.data() + comma;
    while (first < last && *first == ' ') ++first;
    const auto [stop, error] = std::from_chars(first, last, id);
    if (error != std::errc() || stop != last || id < 0) return bad();
    ids.push_back(id);
    begin = comma + 1;
  }
  if (std::set<std::int32_t>(ids.begin(), ids.end()).size() != ids.size()) return bad();
  return ids;
}

Result<fanout::SnapshotReply> run_producer(const RunRequest& request, std::stop_token stop,
                                           const Producer::OnProgress& on_progress) {
  return ProducerProcess(request, std::move(stop)).run(on_progress);
}

}  // namespace levada::producer
