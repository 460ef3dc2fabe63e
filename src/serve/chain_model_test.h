// What: ChainModel, a StepExecutor whose next token is a fixed successor of the token before, and Site, a whole server
// around it: real HTTP, real scheduler, real tokenizer.
// Owner: api_test.
// Thread: plans are executed on its own thread; hold() and release() from the test's.
// Invariant: a greedy answer is determined by the prompt's last token; a sampled one by (seed, position).
// No format of its own.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/mailbox.h"
#include "base/thread.h"
#include "http/client.h"
#include "serve/api.h"
#include "serve/test_model.h"

namespace levada::serve {

class ChainModel final : public core::StepExecutor {
 public:
  ChainModel() : thread_("chain-model", [this] { run(); }) {}
  ~ChainModel() override {
    release();
    plans_.close();
  }

  // After `token`, `text`'s tokens follow, then the end of the text.
  void chain(core::Token token, const std::string& text) {
    for (const core::Token next : test_tokenizer().encode(text, {false, false})) {
      next_[token] = next;
      token = next;
    }
    next_[token] = *test_tokenizer().eos();
  }

  void submit(std::unique_ptr<core::StepPlan> plan) override { plans_.push(std::move(plan)); }
  void set_result_sink(std::function<void(core::StepResult)> sink) override { sink_ = std::move(sink); }

  // No step ends until release().
  void hold() { set_held(true); }
  void release() { set_held(false); }
  // Every step from the given number of samples on fails.
  void fail_after(int samples) {
    std::lock_guard lock(mutex_);
    samples_left_ = samples;
  }
  // Every step from now on fails, as on a device that keeps its error.
  void lose(const std::string& why) {
    std::lock_guard lock(mutex_);
    loss_ = internal_error(why);
  }

 private:
  void set_held(bool held) {
    {
      std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }

  void run() {
    std::vector<std::unique_ptr<core::StepPlan>> plans;
    while (plans_.take(plans)) {
      for (const auto& plan : plans) sink_(execute(*plan));
      plans.clear();
    }
  }

  core::StepResult execute(core::StepPlan& plan) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !held_; });
    core::StepResult result;
    result.step = plan.step;
    for (const core::FutureToken& future : plan.future_tokens) {
      plan.tokens[future.row] = future.previous_sample < static_cast<int>(previous_.size())
                                    ? previous_[future.previous_sample]
                                    : core::Token{0};  // the step before failed
    }
    if (!loss_.ok()) {
      result.status = loss_;
      result.executor_lost = true;
      return result;
    }
    if (samples_left_ == 0 && !plan.samples.empty()) {
      result.status = internal_error("the scripted device failed");
      previous_.clear();
      return result;
    }
    for (const core::SampleRow& sample : plan.samples) result.sampled.push_back(sample_token(plan, sample));
    if (samples_left_ > 0 && !plan.samples.empty()) --samples_left_;
    previous_ = result.sampled;
    return result;
  }

  // What the chain says if the row's mask allows it, else one of what it allows, by (seed, position).
  core::Token sample_token(const core::StepPlan& plan, const core::SampleRow& sample) const {
    const core::Token chosen = chosen_token(plan, sample);
    if (sample.mask_first < 0) return chosen;
    const auto shown = [&](core::Token id) {
      return (plan.masks[static_cast<std::size_t>(sample.mask_first + id / 32)] >> (id % 32) & 1u) != 0;
    };
    if (shown(chosen)) return chosen;
    std::vector<core::Token> allowed, blank;  // blanks may come without end: only if there is nothing else
    for (core::Token id = 0; id < test_tokenizer().vocab_size(); ++id) {
      const bool is_blank = test_tokenizer().bytes(id).find_first_not_of(" \t\r\n") == std::string_view::npos;
      if (shown(id)) (is_blank ? blank : allowed).push_back(id);
    }
    if (allowed.empty()) allowed = std::move(blank);
    const std::uint64_t mixed = (sample.seed * 0x9E3779B97F4A7C15u) ^ (sample.position * 0xBF58476D1CE4E5B9u);
    return allowed[(mixed >> 20) % allowed.size()];
  }

  core::Token chosen_token(const core::StepPlan& plan, const core::SampleRow& sample) const {
    if (sample.temperature > 0 && sample.top_k != 1) {
      const std::uint64_t mixed = (sample.seed * 0x9E3779B97F4A7C15u) ^ (sample.position * 0xBF58476D1CE4E5B9u);
      return 300 + static_cast<core::Token>((mixed >> 32) % 1000);
    }
    const auto found = next_.find(plan.tokens[sample.row]);
    return found == next_.end() ? core::Token{300} : found->second;  // token 300 repeats for ever
  }

  std::map<core::Token, core::Token> next_;
  std::function<void(core::StepResult)> sink_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int samples_left_ = -1;
  Status loss_;
  std::vector<core::Token> previous_;
  Mailbox<std::unique_ptr<core::StepPlan>> plans_;
  Thread thread_;
};

class Site {
 public:
  explicit Site(Options options = {}, sched::Options sched_options = {}, DraftControl* drafts = nullptr,
                LiveSamples* samples = nullptr) {
    options.port = 0;
    const http::ServerOptions http_options = serve::http_options(options);
    server_ = http::Server::listen(http_options, metrics_).value();
    outbox_ = std::make_unique<Outbox>(*server_);
    const core::ModelInfo info = test_info();
    const sched::Limits limits{info.context_length_tokens, 512, info.vocab_size, info.eos_token_ids};
    core::KvPlane plane;
    plane.name = "k";
    plane.elements_per_token = 1;
    plane.layers = {0};
    scheduler_ = std::make_unique<sched::Scheduler>(sched_options, limits, core::KvLayout(1, {plane}), model, *outbox_,
                                                    &test_tokenizer(), clock_, metrics_);
    const ServedModel served{info, info.context_length_tokens, &test_tokenizer(), &test_template()};
    ServerFacts facts;
    OptionTable table;
    describe(table, options);
    facts.arguments = arguments_of(table);
    facts.kernels_backend = "chain";
    api_ =
        std::make_unique<Api>(options, served, std::move(facts),
                              Api::Ground{*server_, *outbox_, *scheduler_, clock_, metrics_, nullptr, drafts, samples});
  }

  // The chains must be set before.
  void start() {
    brain_ = Thread("brain", [this] { scheduler_->run(); });
    io_ = Thread("io", [this] { server_->run(); });
  }

  ~Site() {
    model.release();
    stop_scheduler();
    server_->stop(std::chrono::milliseconds(0));
    io_.join();
    api_.reset();
  }

  // As at shutdown, but for the server, which goes on.
  void stop_scheduler() {
    scheduler_->stop();
    brain_.join();
  }

  std::uint16_t port() const { return server_->port(); }
  std::vector<std::string> routes() const { return server_->routes(); }
  http::Client client() const { return http::Client("127.0.0.1", port()); }

  ChainModel model;

 private:
  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<Outbox> outbox_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::unique_ptr<Api> api_;
  Thread brain_, io_;
};

}  // namespace levada::serve
