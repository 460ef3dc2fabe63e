#include "serve/intake.h"

#include <simdjson.h>

#include <exception>

#include "base/log.h"

namespace levada::serve {

namespace {

// A parser keeps buffers for the largest body it has seen; beyond this they are given back.
constexpr std::size_t kKeptParserBytes = 4 << 20;

std::function<void()> run_guarded(const Intake::Job& job, simdjson::dom::parser& parser) {
  try {
    return job(parser);
  } catch (const std::exception& error) {
    LEVADA_LOG_ERROR("serve: reading a request threw: ", error.what());
  } catch (...) {
    LEVADA_LOG_ERROR("serve: reading a request threw something that is no exception");
  }
  return nullptr;
}

}  // namespace

Intake::Intake(http::Server& server) : server_(server) {
  short_.thread = Thread("intake", [this] { run(short_); });
  long_.thread = Thread("intake-long", [this] { run(long_); });
  compiling_.thread = Thread("intake-forms", [this] { run(compiling_); });
}

Intake::~Intake() {
  short_.mailbox.close();
  long_.mailbox.close();
  compiling_.mailbox.close();
  short_.thread.join();
  long_.thread.join();
  compiling_.thread.join();
}

Status Intake::submit(std::size_t body_bytes, Job job, bool compiles) {
  Lane& lane = compiles ? compiling_ : body_bytes > kLongBodyBytes ? long_ : short_;
  if (lane.waiting >= kMaxWaiting) {
    return resource_exhausted(std::to_string(kMaxWaiting) + " requests are waiting to be read; try again later");
  }
  // A body that waits alone may be larger than the budget: --max-body-bytes allowed it.
  if (waiting_bytes_ > 0 && waiting_bytes_ + body_bytes > kMaxWaitingBytes) {
    return resource_exhausted(std::to_string(waiting_bytes_) +
                              " bytes of requests are waiting to be read; the limit is " +
                              std::to_string(kMaxWaitingBytes) + "; try again later");
  }
  if (!lane.mailbox.push({body_bytes, std::move(job)})) return unavailable("the server is shutting down");
  ++lane.waiting;
  waiting_bytes_ += body_bytes;
  return {};
}

void Intake::run(Lane& lane) {
  auto parser = std::make_unique<simdjson::dom::parser>();
  std::vector<Entry> entries;
  while (lane.mailbox.take(entries)) {
    for (Entry& entry : entries) {
      std::function<void()> then = run_guarded(entry.job, *parser);
      entry.job = nullptr;
      server_.post([this, &lane, body_bytes = entry.body_bytes, then = std::move(then)] {
        --lane.waiting;
        waiting_bytes_ -= body_bytes;
        if (then) then();
      });
      if (parser->capacity() > kKeptParserBytes) parser = std::make_unique<simdjson::dom::parser>();
    }
    entries.clear();
  }
}

}  // namespace levada::serve
