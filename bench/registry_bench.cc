#include "bench/registry_bench.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <memory>

#include "base/fd.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "registry/registry.h"
#include "registry/registry_client.h"
#include "registry/registry_server.h"
#include "registry/sql_storage.h"

namespace levada::bench {

namespace {

using fanout::Outcome;
using fanout::Reply;
using SteadyClock = std::chrono::steady_clock;

constexpr std::int64_t kBytesPerToken = 1;
constexpr std::int64_t kWaitMs = 20'000;

struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::current_path() / "levada_bench_registry_XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

std::shared_ptr<const fanout::RunConfig> config_for(std::int64_t consumers, std::int64_t total) {
  auto config = std::make_shared<fanout::RunConfig>();
  config->run_id = "bench";
  config->store_id = "bench";
  config->contract_digest = config->source_digest = "bench";
  config->bytes_per_token = kBytesPerToken;
  config->feature_names = {"hidden_states", "input_ids", "loss_mask"};
  config->max_live_refs = 256;
  config->max_live_bytes = 1 << 20;
  for (std::int64_t p = 0; p < total; ++p) config->sources.push_back({"bench:" + std::to_string(p), 512});
  for (std::int64_t c = 0; c < consumers; ++c) {
    config->consumers.push_back({"consumer" + std::to_string(c), 1, 2, 40, 8, 8});
  }
  return config;
}

fanout::RegisterRequest registration(const fanout::ConsumerSpec& spec) {
  return {"bench",
          spec.consumer_id,
          "bench",
          "bench",
          "recipe",
          spec.lookbehind,
          spec.lookahead,
          spec.prefetch_depth,
          spec.max_outstanding,
          spec.quantum,
          "nonce",
          false};
}

fanout::RefPtr ref_of(const fanout::CaptureOrder& order) {
  auto ref = std::make_shared<core::SampleRef>();
  ref->store_id = "bench";
  ref->sample_id = order.source_sample_id;
  ref->generation = static_cast<std::uint32_t>(order.generation);
  ref->store_url = "tcp://127.0.0.1:30001";
  ref->incarnation = 1;
  ref->num_tokens = 512;
  ref->aux_layer_ids = {1, 8, 14, 20, 27};
  ref->tensors = {{"hidden_states", DType::kBF16, {1, 512, 2880}, 1},
                  {"input_ids", DType::kI64, {1, 512}, 2},
                  {"loss_mask", DType::kI64, {1, 512}, 3}};
  return ref;
}

Result<std::unique_ptr<registry::Registry>> open_registry(const Folder& folder, const char* name,
                                                          std::shared_ptr<const fanout::RunConfig> config,
                                                          const Clock& clock) {
  LEVADA_ASSIGN_OR_RETURN(auto storage, registry::open_sqlite_storage(folder.path + "/" + name, {"bench"}));
  return registry::Registry::open(std::move(config), std::move(storage), clock);
}

// --- throughput: many callers, each with one call in flight; all of them run in the registry's answers ---------------

struct Load {
  registry::Registry& registry;
  std::int64_t total;
  std::atomic<std::int64_t> transitions{0};
  std::atomic<std::int64_t> consumers_left{0};
  std::promise<void> finished;
};

template <class R>
void send(Load& load, R request, std::function<void(const typename R::Reply&)> then) {
  load.registry.submit(std::move(request), [then = std::move(then)](Outcome<Reply> outcome) {
    if (outcome.ok()) then(std::get<typename R::Reply>(*outcome));  // else: the registry stops
  });
}

class LoadConsumer {
 public:
  LoadConsumer(Load& load, fanout::SessionKey key) : load_(load), key_(std::move(key)) {}

  void acquire() {
    send(load_, fanout::AcquireRequest{key_, cursor_, 4, kWaitMs}, [this](const fanout::AcquireReply& reply) {
      if (reply.head == fanout::Head::kEof) {
        if (--load_.consumers_left == 0) load_.finished.set_value();
        return;
      }
      load_.transitions += !reply.leases.empty();
      held_ = static_cast<std::int64_t>(reply.leases.size());
      held_ > 0 ? acknowledge() : acquire();
    });
  }

 private:
  void acknowledge() {
    const fanout::OpKey op{key_.session_id, key_.session_epoch, cursor_ + 1};
    send(load_, fanout::AdvanceRequest{op, cursor_, cursor_ + 1, cursor_ + 1, true},
         [this](const fanout::CursorReply& reply) {
           load_.transitions += 1;
           cursor_ = reply.cursor;
           --held_ > 0 ? acknowledge() : acquire();
         });
  }

  Load& load_;
  fanout::SessionKey key_;
  std::int64_t cursor_ = 0;
  std::int64_t held_ = 0;
};

class LoadWorker {
 public:
  LoadWorker(Load& load, std::string name) : load_(load), name_(std::move(name)) {}

  void claim() {
    send(load_, fanout::ClaimRequest{name_, "http://127.0.0.1:30000", ++claim_id_, 4, kWaitMs},
         [this](const fanout::ClaimReply& reply) {
           orders_ = reply.requests;
           load_.transitions += !orders_.empty();
           next();
         });
  }

 private:
  void next() {
    if (orders_.empty()) return claim();
    const fanout::CaptureOrder order = orders_.back();
    orders_.pop_back();
    send(load_,
         fanout::MarkCommittingRequest{order.source_index, order.generation, order.nonce, ref_of(order),
                                       order.reserved_bytes},
         [this, order](const fanout::EntryReply&) {
           load_.transitions += 1;
           send(load_, fanout::CompleteCaptureRequest{order.source_index, order.generation, order.nonce},
                [this](const fanout::EntryReply&) {
                  load_.transitions += 1;
                  next();
                });
         });
  }

  Load& load_;
  std::string name_;
  std::int64_t claim_id_ = 0;
  std::vector<fanout::CaptureOrder> orders_;
};

void remove_forever(Load& load) {
  send(load, fanout::RemovalsRequest{64, kWaitMs}, [&load](const fanout::RemovalsReply& reply) {
    for (const fanout::Removal& removal : reply.removals) {
      send(load, fanout::FinishEvictionRequest{removal.source_index, removal.generation, {}},
           [&load](const fanout::EntryReply&) { load.transitions += 1; });
    }
    remove_forever(load);
  });
}

Result<double> transitions_per_second(const Folder& folder, std::int64_t turn, std::int64_t total) {
  constexpr std::int64_t kConsumers = 16;
  constexpr std::int64_t kWorkers = 16;
  const SystemClock clock;
  const auto config = config_for(kConsumers, total);
  LEVADA_ASSIGN_OR_RETURN(auto registry, open_registry(folder, ("rate" + std::to_string(turn)).c_str(), config, clock));
  registry::LocalApi api(*registry);
  Load load{*registry, total};
  load.consumers_left = kConsumers;
  std::vector<std::unique_ptr<LoadConsumer>> consumers;
  std::vector<std::unique_ptr<LoadWorker>> workers;
  for (const fanout::ConsumerSpec& spec : config->consumers) {
    const auto session = api.call(registration(spec));
    if (!session.ok()) return internal_error(session.error().message);
    consumers.push_back(
        std::make_unique<LoadConsumer>(load, fanout::SessionKey{session->session_id, session->session_epoch}));
  }
  const auto start = SteadyClock::now();
  for (const auto& consumer : consumers) consumer->acquire();
  for (std::int64_t w = 0; w < kWorkers; ++w) {
    workers.push_back(std::make_unique<LoadWorker>(load, "worker" + std::to_string(w)));
    workers.back()->claim();
  }
  remove_forever(load);
  load.finished.get_future().wait();
  const std::chrono::duration<double> spent = SteadyClock::now() - start;
  const double rate = static_cast<double>(load.transitions) / spent.count();
  registry->stop();  // what still waits is answered with an error, and sends nothing more
  return rate;
}

// --- latency: waiting clients over HTTP ------------------------------------------------------------------------------

// Waits at each position in turn; notes how long after its capture was complete the answer came.
void wait_for_each(registry::RegistryClient& client, const fanout::ConsumerSpec& spec, std::int64_t total,
                   const std::vector<std::atomic<std::int64_t>>& completed_ns, std::vector<double>& samples) {
  const auto session = client.call(registration(spec));
  if (!session.ok()) return;
  const fanout::SessionKey key{session->session_id, session->session_epoch};
  for (std::int64_t p = 0; p < total;) {
    const auto got = client.call(fanout::AcquireRequest{key, p, 1, kWaitMs});
    if (!got.ok()) return;
    if (got->leases.empty()) continue;
    const std::int64_t now_ns = SteadyClock::now().time_since_epoch().count();
    samples.push_back(static_cast<double>(now_ns - completed_ns[static_cast<std::size_t>(p)].load()) / 1000);
    if (!client.call(fanout::AdvanceRequest{{key.session_id, key.session_epoch, p + 1}, p, p + 1, p + 1, true}).ok()) {
      return;
    }
    p += 1;
  }
}

// Completes a capture each time all `clients` wait for it, and removes what they have all passed.
Status publish_each(registry::Registry& registry, std::int64_t total, std::int64_t clients,
                    std::vector<std::atomic<std::int64_t>>& completed_ns) {
  registry::LocalApi producer(registry);
  for (std::int64_t p = 0; p < total; ++p) {
    const auto claimed = producer.call(fanout::ClaimRequest{"w", "s", p + 1, 1, kWaitMs});
    if (!claimed.ok() || claimed->requests.empty()) return internal_error("the bench's claim got nothing");
    const fanout::CaptureOrder& order = claimed->requests[0];
    (void)producer.call(fanout::MarkCommittingRequest{order.source_index, order.generation, order.nonce, ref_of(order),
                                                      order.reserved_bytes});
    while (producer.call(fanout::SnapshotRequest{})->counters["waiters"] < clients) std::this_thread::yield();
    completed_ns[static_cast<std::size_t>(order.source_index)] = SteadyClock::now().time_since_epoch().count();
    (void)producer.call(fanout::CompleteCaptureRequest{order.source_index, order.generation, order.nonce});
    const auto passed = producer.call(fanout::RemovalsRequest{16, 0});
    if (!passed.ok()) return internal_error(passed.error().message);
    for (const fanout::Removal& removal : passed->removals) {
      (void)producer.call(fanout::FinishEvictionRequest{removal.source_index, removal.generation, {}});
    }
  }
  return {};
}

Result<Case> acquire_latency(const Folder& folder, std::int64_t total) {
  constexpr std::int64_t kClients = 8;
  const SystemClock clock;
  Metrics metrics;
  const auto config = config_for(kClients, total);
  const registry::RefContext context{"bench"};
  LEVADA_ASSIGN_OR_RETURN(auto registry, open_registry(folder, "latency", config, clock));
  http::ServerOptions server_options;
  server_options.port = 0;
  LEVADA_ASSIGN_OR_RETURN(auto server, http::Server::listen(server_options, metrics));
  LEVADA_RETURN_IF_ERROR(registry::mount_registry(*server, *registry, {"token", ""}, context));
  Thread io("bench-io", [&] { server->run(); });
  registry::ClientOptions client_options;
  client_options.port = server->port();
  client_options.token = "token";
  registry::RegistryClient client(client_options, context, clock, [](std::chrono::milliseconds) {});

  std::vector<std::atomic<std::int64_t>> completed_ns(static_cast<std::size_t>(total));
  std::vector<std::vector<double>> samples(kClients);
  std::vector<Thread> threads;
  for (std::size_t c = 0; c < samples.size(); ++c) {
    threads.emplace_back("bench-client" + std::to_string(c),
                         [&, c] { wait_for_each(client, config->consumers[c], total, completed_ns, samples[c]); });
  }
  const Status published = publish_each(*registry, total, kClients, completed_ns);
  if (!published.ok()) registry->stop();  // else the clients wait for ever
  threads.clear();
  registry->stop();
  server->stop(std::chrono::milliseconds(100));
  io.join();
  LEVADA_RETURN_IF_ERROR(published);
  std::vector<double> all;
  for (const auto& some : samples) all.insert(all.end(), some.begin(), some.end());
  if (all.empty()) return internal_error("the bench's clients got nothing");
  return summarize_us("acquire_8_waiting", std::move(all));
}

Result<Case> one_durable_call(const Folder& folder, std::int32_t samples) {
  const SystemClock clock;
  const auto config = config_for(1, 4);
  LEVADA_ASSIGN_OR_RETURN(auto registry, open_registry(folder, "one", config, clock));
  registry::LocalApi api(*registry);
  const auto session = api.call(registration(config->consumers[0]));
  if (!session.ok()) return internal_error(session.error().message);
  std::int64_t op = 0;
  return sample_us(
      "one_durable_call", {samples, 10}, [] {},
      [&] {
        ++op;
        keep(api.call(fanout::CheckpointRequest{{session->session_id, session->session_epoch, op}, 0, 0, "file:///x"}));
      });
}

Case fdatasync_limit(const Folder& folder, std::int32_t samples) {
  const Fd file(::open((folder.path + "/fdatasync").c_str(), O_CREAT | O_WRONLY, 0600));
  const std::string page(4096, 'x');
  return sample_us(
      "fdatasync_4k", {samples, 10}, [] {},
      [&] {
        keep(::write(file.get(), page.data(), page.size()));
        keep(::fdatasync(file.get()));
      });
}

}  // namespace

Result<std::vector<Case>> run_registry_bench(double scale) {
  const Folder folder;
  if (folder.path.empty()) return unavailable("no temporary folder can be made here");
  const auto scaled = [&](double n) { return static_cast<std::int64_t>(std::max(8.0, n * scale)); };
  std::vector<Case> cases;
  std::vector<double> rates;
  for (std::int64_t turn = 0; turn < 5; ++turn) {
    LEVADA_ASSIGN_OR_RETURN(const double rate, transitions_per_second(folder, turn, scaled(2000)));
    rates.push_back(rate);
  }
  cases.push_back(summarize_rates("durable_transitions", rates, "1/s"));
  LEVADA_ASSIGN_OR_RETURN(const Case latency, acquire_latency(folder, scaled(400)));
  cases.push_back(latency);
  LEVADA_ASSIGN_OR_RETURN(const Case one, one_durable_call(folder, static_cast<std::int32_t>(scaled(300))));
  cases.push_back(one);
  cases.push_back(fdatasync_limit(folder, static_cast<std::int32_t>(scaled(300))));
  return cases;
}

}  // namespace levada::bench
