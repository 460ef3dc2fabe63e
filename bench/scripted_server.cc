#include "bench/scripted_server.h"

#include <future>
#include <utility>

#include "base/thread.h"
#include "serve/api.h"

namespace levada::bench {
namespace {

class ScriptedExecutor final : public core::StepExecutor {
 public:
  ScriptedExecutor(http::Server& server, ScriptedServer::Script script) : server_(server), script_(std::move(script)) {}

  void submit(std::unique_ptr<core::StepPlan> plan) override {
    core::StepResult result;
    result.step = plan->step;
    result.sampled.reserve(plan->samples.size());
    for (const core::SampleRow& sample : plan->samples) result.sampled.push_back(script_(sample.seed, sample.position));
    // Through the I/O thread: the news posted before have been taken there then.
    server_.post([this, result = std::move(result)]() mutable { sink_(std::move(result)); });
  }
  void set_result_sink(std::function<void(core::StepResult)> sink) override { sink_ = std::move(sink); }

 private:
  http::Server& server_;
  ScriptedServer::Script script_;
  std::function<void(core::StepResult)> sink_;
};

core::ModelInfo info_of(const ScriptedServer::Setup& setup) {
  core::ModelInfo info;
  info.path = info.architecture = "scripted";
  info.vocab_size = setup.tokenizer.vocab_size();
  info.context_length_tokens = setup.context_length_tokens;
  info.eos_token_ids = {*setup.tokenizer.eos()};
  return info;
}

core::KvLayout one_plane() {
  core::KvPlane plane;
  plane.name = "k";
  plane.elements_per_token = 1;
  plane.layers = {0};
  return core::KvLayout(16, {plane});
}

}  // namespace

struct ScriptedServer::Impl {
  Impl(const Setup& setup, std::unique_ptr<Metrics> the_metrics, std::unique_ptr<http::Server> listening)
      : metrics(std::move(the_metrics)),
        server(std::move(listening)),
        outbox(*server),
        executor(*server, setup.script),
        scheduler(setup.sched,
                  {setup.context_length_tokens, 1 << 16, setup.tokenizer.vocab_size(), {*setup.tokenizer.eos()}},
                  one_plane(), executor, outbox, &setup.tokenizer, clock, *metrics),
        api({}, {info_of(setup), setup.context_length_tokens, &setup.tokenizer, &setup.chat_template, {}}, {},
            {*server, outbox, scheduler, clock, *metrics}),
        io_thread("scripted-io", [this] { server->run(); }),
        sched_thread("scripted-sched", [this] { scheduler.run(); }) {
    std::promise<CpuClock> io;
    server->post([&io] { io.set_value(CpuClock::of_this_thread()); });
    io_clock = io.get_future().get();
  }
  ~Impl() {
    scheduler.stop();
    sched_thread.join();
    server->stop(std::chrono::milliseconds(0));
    io_thread.join();
  }

  SystemClock clock;
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<http::Server> server;
  serve::Outbox outbox;
  ScriptedExecutor executor;
  sched::Scheduler scheduler;
  serve::Api api;
  CpuClock io_clock;
  Thread io_thread, sched_thread;
};

Result<std::unique_ptr<ScriptedServer>> ScriptedServer::start(const Setup& setup) {
  auto metrics = std::make_unique<Metrics>();
  serve::Options options;
  options.port = 0;
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<http::Server> server,
                          http::Server::listen(serve::http_options(options), *metrics));
  return std::unique_ptr<ScriptedServer>(
      new ScriptedServer(std::make_unique<Impl>(setup, std::move(metrics), std::move(server))));
}

ScriptedServer::ScriptedServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ScriptedServer::~ScriptedServer() = default;

std::uint16_t ScriptedServer::port() const { return impl_->server->port(); }

const CpuClock& ScriptedServer::io_clock() const { return impl_->io_clock; }

Status ScriptedServer::audit() {
  std::promise<Status> told;
  impl_->scheduler.audit([&](const sched::Snapshot&, Status audit) { told.set_value(std::move(audit)); });
  return told.get_future().get();
}

}  // namespace levada::bench
