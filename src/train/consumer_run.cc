#include "train/consumer_run.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "base/log.h"
#include "base/random.h"
#include "consumer/run_card.h"
#include "http/url.h"
#include "registry/registry_client.h"
#include "store/open_store.h"
#include "train/consumer_trainer.h"
#include "train/dealt_source.h"
#include "train/peer_run.h"
#include "train/registry_source.h"
#include "train/training_run.h"

namespace levada::train {
namespace {

constexpr std::int64_t kCardPauseUs = 200'000;

std::int64_t us(double seconds) { return static_cast<std::int64_t>(seconds * 1e6); }

Status differs(const char* field, const std::string& run, const std::string& draft) {
  return Status(StatusCode::kFailedPrecondition, "the run captures " + run + ", the draft wants " + draft, field);
}

template <class T>
std::string list_of(const std::vector<T>& ids) {
  std::string text;
  for (const T id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return "[" + text + "]";
}

// Tells the watcher of each checkpoint on its way to the registry.
class WatchedSource final : public SampleSource {
 public:
  WatchedSource(consumer::Feed& feed, const ConsumerEvents& events) : source_(feed), events_(events) {}
  Result<std::vector<Sample>> next(std::int64_t count) override { return source_.next(count); }
  Status checkpointed(std::int64_t step, const std::filesystem::path& folder) override {
    LEVADA_RETURN_IF_ERROR(source_.checkpointed(step, folder));
    if (events_.on_checkpoint) events_.on_checkpoint(step, folder);
    return {};
  }
  Result<bool> confirm() override { return source_.confirm(); }
  Status stepped(std::int64_t step) override { return source_.stepped(step); }

 private:
  RegistrySource source_;
  const ConsumerEvents& events_;
};

// The whole process as an object: members end in the reverse order of their beginnings.
class ConsumerProcess {
 public:
  ConsumerProcess(const ConsumerRunRequest& request, std::stop_token stop, const ConsumerEvents& events)
      : request_(request), events_(events), options_(request.trainer), stop_(std::move(stop)) {}

  Result<ConsumerSummary> run() {
    const std::stop_callback on_stop(stop_, [this] {
      is_stopped_ = true;
      pause_.stop();
    });
    LEVADA_RETURN_IF_ERROR(wait_for_run());
    LEVADA_RETURN_IF_ERROR(check_fit());
    const Status opened = open_session();
    if (session_ && session_->completed_before()) return finished_before();
    LEVADA_RETURN_IF_ERROR(opened);
    auto summary = train();
    if (!summary.ok() && is_final(summary.status())) {
      const Status told = feed_->fail(summary.status().to_string());
      if (!told.ok()) LEVADA_LOG_WARNING("fail_consumer: ", told);
    }
    return summary;
  }

 private:
  void say(const std::string& text) const {
    if (events_.on_state) events_.on_state(text);
  }

  // A stop or a silent peer may pass: this consumer can be started again. Anything else can't be waited out.
  static bool is_final(const Status& status) {
    return status.code() != StatusCode::kAborted && status.code() != StatusCode::kUnavailable;
  }

  Status wait_for_run() {
    say("waiting for the run");
    const std::int64_t until_us = clock_.now_us() + us(request_.consumer.start_wait_s);
    for (;;) {
      LEVADA_ASSIGN_OR_RETURN(auto card, consumer::read_run_card(request_.consumer.control_dir));
      if (card) {
        card_ = std::move(*card);
        return {};
      }
      if (clock_.now_us() >= until_us) {
        return unavailable("no run came up: there is no " + request_.consumer.control_dir + "/" +
                           consumer::kRunCardName);
      }
      if (!pause_.wait_us(kCardPauseUs)) return Status(StatusCode::kAborted, "stopped");
    }
  }

  Status check_fit() {
    const std::vector<std::int64_t> captured(card_.aux_layer_ids.begin(), card_.aux_layer_ids.end());
    if (captured != request_.draft.target_layer_ids) {
      return differs("aux_layer_ids", list_of(captured), list_of(request_.draft.target_layer_ids));
    }
    if (card_.hidden_size != request_.draft.hidden) {
      return differs("hidden_size", std::to_string(card_.hidden_size), std::to_string(request_.draft.hidden));
    }
    if (card_.dtype != DType::kBF16) return differs("dtype", std::string(to_string(card_.dtype)), "bfloat16");
    const std::int64_t step = options_.samples_per_step() * (request_.ranks != nullptr ? request_.ranks->world() : 1);
    if (request_.window.quantum != step) {
      return Status(StatusCode::kFailedPrecondition,
                    "must be batch_size * accumulation_steps * processes = " + std::to_string(step) + ", got " +
                        std::to_string(request_.window.quantum),
                    "quantum");
    }
    const std::int64_t planned = card_.total_samples / request_.window.quantum;
    if (planned == 0) {
      return Status(StatusCode::kFailedPrecondition,
                    "the plan of " + std::to_string(card_.total_samples) + " samples has no whole step", "batch_size");
    }
    if (options_.total_steps == 0) options_.total_steps = planned;
    return {};
  }

  Status open_session() {
    const std::string& url =
        request_.consumer.registry_url.empty() ? card_.registry_url : request_.consumer.registry_url;
    const auto parsed = http::parse_http_url(url);
    if (!parsed.ok()) return invalid_argument(parsed.status().message(), "registry_url");
    registry::ClientOptions client;
    client.host = parsed->host;
    client.port = parsed->port;
    client.token = request_.registry_token;
    client.patience = std::chrono::milliseconds(0);  // the session is the patient one
    client.stop = stop_;
    registry::RefContext context;
    context.run_id = card_.run_id;
    registry_ = std::make_unique<registry::RegistryClient>(client, context, clock_, [](std::chrono::milliseconds) {});
    const fanout::ConsumerSpec& window = request_.window;
    const fanout::RegisterRequest who{card_.run_id,           request_.consumer.consumer_id,
                                      card_.contract_digest,  card_.source_digest,
                                      request_.recipe_hash,   window.lookbehind,
                                      window.lookahead,       window.prefetch_depth,
                                      window.max_outstanding, window.quantum,
                                      random_hex(2),          request_.consumer.takeover};
    const consumer::Session::Options patience{us(request_.consumer.registry_outage_s),
                                              us(request_.consumer.start_wait_s)};
    session_ = std::make_unique<consumer::Session>(who, patience, *registry_, clock_, pause_);
    say("registering at " + url);
    LEVADA_RETURN_IF_ERROR(session_->open());
    LEVADA_RETURN_IF_ERROR(open_reader());
    consumer::Feed::Options feed;
    feed.read_margin_us = us(request_.consumer.read_margin_s);
    feed.idle_us = us(request_.consumer.idle_timeout_s);
    feed_ = std::make_unique<consumer::Feed>(feed, window, *session_, *reader_, clock_, pause_);
    feed_->start_heartbeat();  // building the model may take longer than a session lives
    return {};
  }

  // Features are brought to the device that trains, unless they are there already. Ranks get theirs over sockets: from host
  // memory, and from copies, since nobody could take back what they were sent.
  Status open_reader() {
    if (options_.device == "cuda" && request_.ranks == nullptr) {
      LEVADA_ASSIGN_OR_RETURN(device_, device::open_device(device::DeviceKind::kCuda));
    }
    consumer::SampleReader::Options reading;
    reading.max_quarantined_bytes = static_cast<std::uint64_t>(request_.consumer.max_quarantined_bytes);
    reading.check_first_values = request_.consumer.check_first_values;
    reading.device = device_.get();
    reading.in_place =
        request_.ranks == nullptr && request_.window.max_outstanding <= consumer::SampleReader::kMostInPlace;
    if (!reading.in_place) LEVADA_LOG_INFO("samples are copied before they are used, not used in the store's memory");
    reader_ = std::make_unique<consumer::SampleReader>(
        reading, card_,
        [this](const std::string& store) {
          return store::open_store(store, request_.store_token, {.device = device_.get()}, clock_);
        },
        pause_);
    return {};
  }

  Result<ConsumerSummary> train() {
    if (request_.ranks != nullptr) LEVADA_RETURN_IF_ERROR(start_peers(*request_.ranks, options_.total_steps));
    say("loading the target's tables");
    LEVADA_ASSIGN_OR_RETURN(const auto trainer, open_trainer(request_, options_));
    const std::int64_t resumed = trainer->steps();
    LEVADA_RETURN_IF_ERROR(feed_->begin(resumed, resumed == 0 ? "" : latest_checkpoint(options_).string()));
    feed_->start_fetching();
    say("training from step " + std::to_string(resumed) + " of " + std::to_string(options_.total_steps));
    const std::stop_callback wake(stop_, [this] { feed_->stop(); });
    WatchedSource whole(*feed_, events_);
    std::optional<DealtSource> dealt;
    if (request_.ranks != nullptr) dealt.emplace(whole, *request_.ranks);
    SampleSource& source = dealt ? static_cast<SampleSource&>(*dealt) : whole;
    RunHooks hooks;
    hooks.stop = &is_stopped_;
    hooks.on_step = [&](const StepReport& report, double, double) {
      if (events_.on_step) events_.on_step(report, report.step * request_.window.quantum);
    };
    const std::int64_t since_us = clock_.now_us();
    auto report = run_training(*trainer, source, clock_, hooks);
    training_us_ = clock_.now_us() - since_us;
    if (is_stopped_) return on_stopped(*trainer);
    LEVADA_RETURN_IF_ERROR(report.status());
    return finish(*trainer, *report);
  }

  // It had told the registry, and died before its launcher heard of it. Checkpoint and export came before that.
  Result<ConsumerSummary> finished_before() {
    LEVADA_ASSIGN_OR_RETURN(const auto trainer, open_trainer(request_, options_));
    LEVADA_LOG_INFO("consumer ", request_.consumer.consumer_id, " was complete at step ", trainer->steps());
    ConsumerSummary summary;
    summary.consumer_id = request_.consumer.consumer_id;
    summary.step = trainer->steps();
    summary.cursor = summary.step * request_.window.quantum;
    std::error_code error;  // the step it links to; the link itself where that can't be said
    summary.checkpoint = std::filesystem::weakly_canonical(latest_checkpoint(options_), error);
    return summary;
  }

  // The steps since the last checkpoint are kept; the registry hears of it at the next start.
  Status on_stopped(DflashTrainer& trainer) const {
    const Result<std::filesystem::path> saved = trainer.steps() > 0 ? trainer.save() : latest_checkpoint(options_);
    LEVADA_RETURN_IF_ERROR(saved.status());
    return Status(StatusCode::kAborted,
                  "stopped after step " + std::to_string(trainer.steps()) + "; it may be started again");
  }

  Result<ConsumerSummary> finish(DflashTrainer& trainer, const RunReport& report) {
    if (!request_.export_dir.empty()) {
      say("exporting to " + request_.export_dir.string());
      LEVADA_RETURN_IF_ERROR(trainer.export_to(request_.export_dir));
    }
    ConsumerSummary summary;
    // Steps of the plan may be left when the recipe asked for fewer.
    const bool is_partial = feed_->cursor() < feed_->usable_end();
    LEVADA_ASSIGN_OR_RETURN(summary.skipped_tail, feed_->complete(is_partial));
    summary.consumer_id = request_.consumer.consumer_id;
    summary.cursor = feed_->cursor();
    summary.step = report.steps;
    std::error_code error;  // as in finished_before(): the step that the link stands for
    summary.checkpoint = report.checkpoint.empty()
                             ? std::filesystem::weakly_canonical(latest_checkpoint(options_), error)
                             : report.checkpoint;
    summary.loss_first = report.loss_first;
    summary.loss_last = report.loss_last;
    summary.accept_len = report.tau_last;
    report_counts(summary, feed_->counts());
    return summary;
  }

  void report_counts(const ConsumerSummary& summary, const consumer::Feed::Counts& counts) const {
    const auto samples = static_cast<double>(std::max<std::int64_t>(1, counts.acquired));
    LEVADA_LOG_INFO("consumer ", summary.consumer_id, " is complete at step ", summary.step, ": ", counts.acquired,
                    " samples (", counts.in_place, " trained on in place), ", counts.ready_at_request,
                    " of them without waiting, ", static_cast<double>(counts.read_us) / 1000, " ms to read one, ",
                    samples * 1e6 / static_cast<double>(std::max<std::int64_t>(1, training_us_)), " samples/s, ",
                    counts.waited_us / 1000, " ms waited, ", counts.reported_lost, " reported lost, ", counts.gone_back,
                    " fetched twice, ", summary.skipped_tail, " left at the end");
  }

  const ConsumerRunRequest& request_;
  const ConsumerEvents& events_;
  Options options_;
  std::stop_token stop_;
  std::atomic<bool> is_stopped_{false};
  StoppablePause pause_;
  SystemClock clock_;
  std::int64_t training_us_ = 0;
  consumer::RunCard card_;
  std::unique_ptr<device::Device> device_;  // that trains, if features can stay there
  std::unique_ptr<fanout::RegistryApi> registry_;
  std::unique_ptr<consumer::Session> session_;
  std::unique_ptr<consumer::SampleReader> reader_;
  std::unique_ptr<consumer::Feed> feed_;
};

}  // namespace

Result<ConsumerSummary> run_consumer(const ConsumerRunRequest& request, std::stop_token stop,
                                     const ConsumerEvents& events) {
  return ConsumerProcess(request, std::move(stop), events).run();
}

}  // namespace levada::train
