#include "serve/intake.h"

#include <simdjson.h>

namespace levada::serve {

namespace {

// A parser keeps buffers for the largest body it has seen; beyond this they are given back.
constexpr std::size_t kKeptParserBytes = 4 << 20;

}  // namespace

Intake::Intake(http::Server& server) : server_(server) {
  short_.thread = Thread("intake", [this] { run(short_); });
  long_.thread = Thread("intake-long", [this] { run(long_); });
}

Intake::~Intake() {
  short_.mailbox.close();
  long_.mailbox.close();
  short_.thread.join();
  long_.thread.join();
}

Status Intake::submit(std::size_t body_bytes, Job job) {
  Lane& lane = body_bytes > kLongBodyBytes ? long_ : short_;
  if (lane.waiting >= kMaxWaiting) {
    return resource_exhausted(std::to_string(kMaxWaiting) + " requests are waiting to be read; try again later");
  }
  if (!lane.mailbox.push(std::move(job))) return unavailable("the server is shutting down");
  ++lane.waiting;
  return {};
}

void Intake::run(Lane& lane) {
  auto parser = std::make_unique<simdjson::dom::parser>();
  std::vector<Job> jobs;
  while (lane.mailbox.take(jobs)) {
    for (Job& job : jobs) {
      server_.post([&lane, then = job(*parser)] {
        --lane.waiting;
        if (then) then();
      });
      job = nullptr;
      if (parser->capacity() > kKeptParserBytes) parser = std::make_unique<simdjson::dom::parser>();
    }
    jobs.clear();
  }
}

}  // namespace levada::serve
