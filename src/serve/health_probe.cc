#include "serve/health_probe.h"

#include "serve/error.h"

namespace levada::serve {

namespace {

constexpr std::chrono::milliseconds kLookEvery{500};
constexpr int kQueueFull = 429, kAborted = 499;  // the latter by /abort_request

CallSpec probe_call(std::int64_t now_us) {
  core::Request request;
  request.prompt = {0};
  request.sampling.temperature = 0.0f;
  request.sampling.max_new_tokens = 1;
  request.cache_namespace.extra_key = "levada-health-probe";
  request.arrival_us = now_us;
  CallSpec call;
  call.counted = false;
  call.members.push_back({std::move(request), ""});
  return call;
}

}  // namespace

HealthProbe::HealthProbe(LiveCalls& calls, const sched::Scheduler& scheduler, http::Server& server, const Clock& clock,
                         std::int64_t timeout_s)
    : calls_(calls), scheduler_(scheduler), server_(server), clock_(clock), timeout_us_(timeout_s * 1'000'000) {}

void HealthProbe::handle(const http::Responder& responder) {
  if (askers_.size() >= kMaxAskers) {
    return respond_error(responder, unavailable("too many health probes are waiting; the engine is not answering"));
  }
  askers_.push_back(responder);
  if (askers_.size() == 1) start();
}

void HealthProbe::start() {
  started_us_ = clock_.now_us();
  ++round_;
  server_.post_after(kLookEvery, [this, round = round_] { look(round); });
  send_probe();
}

void HealthProbe::send_probe() {
  // May be answered before start() returns.
  probe_ = calls_.start(probe_call(clock_.now_us()), [this](const Emission& emission) {
    if (emission.status == kQueueFull || emission.status == kAborted) return;  // look() sends another
    if (emission.status == 200) return settle({});
    const Status health = scheduler_.health();
    settle(health.ok() ? unavailable("the engine failed to generate a token") : health);
  });
}

void HealthProbe::look(std::uint64_t round) {
  if (askers_.empty() || round != round_) return;
  const bool busy_and_well = calls_.last_output_us() > started_us_;
  const bool late = clock_.now_us() - started_us_ >= timeout_us_;
  if (!busy_and_well && !late) {
    server_.post_after(kLookEvery, [this, round] { look(round); });
    if (!calls_.is_live(*probe_)) send_probe();
    return;
  }
  calls_.drop(*probe_, Status(StatusCode::kAborted, "the health probe ended"));
  settle(busy_and_well ? Status()
                       : unavailable("no token within " + std::to_string(timeout_us_ / 1'000'000) + " seconds"));
}

void HealthProbe::settle(const Status& health) {
  const std::vector<http::Responder> askers = std::move(askers_);
  askers_.clear();
  for (const http::Responder& asker : askers) {
    if (health.ok()) {
      asker.respond(200, "application/json", "{\"status\":\"ok\"}");
    } else {
      respond_error(asker, health);
    }
  }
}

}  // namespace levada::serve
