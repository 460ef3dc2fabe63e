// What: CaptureCalls, the /generate calls that capture: space for each sample, one prefill each, seal, then one reply.
// Owner: Api.
// Thread: the I/O thread; the Publisher's answers are posted back to it.
// Invariant: the reply leaves when every item is published or has failed; an item fails alone; a client that goes away
// leaves neither requests nor unsealed objects behind.
//
//   item:  open ──space──> prefilling ──whole answer──> sealing ──> published
//            └── refused, no space ──> error <── failed, aborted ──┘
// Format of the reply: docs/formats/capture.md.
#pragma once

#include <map>
#include <memory>

#include "capture/publisher.h"
#include "http/server.h"
#include "serve/capture_request.h"
#include "serve/live_calls.h"

namespace levada::serve {

// Where the captures of this server go, and what clients may ask for.
struct CaptureGround {
  capture::Publisher& publisher;
  CaptureTerms terms;
  std::uint64_t incarnation = 0, arena_bytes = 0;
  std::string tcp_url, shm_url, ucx_url;        // of the store; empty: not served that way
  std::function<std::string()> ucx_transports;  // what UCX chose so far; any thread; may be empty
  // Of an arena on a device; empty otherwise: by what others map it, and "host:port" of the control channel.
  std::string share_kind, control;
};

// The "capture" object of /server_info.
std::string capture_facts(const CaptureGround& ground);

class CaptureCalls {
 public:
  CaptureCalls(const CaptureGround& ground, LiveCalls& calls, http::Server& server)
      : ground_(ground), calls_(calls), server_(server) {}

  enum class BatchId : std::uint64_t {};

  // Runs `call`, one of whose members belongs to each of `body`'s items.
  void start(CallSpec call, CaptureBody body, const http::Responder& responder);
  // Captures one sample of `tokens`; `done` hears its result as JSON, unless drop() comes first.
  BatchId capture(CaptureItem item, std::vector<core::Token> tokens, std::function<void(std::string)> done);
  // Nobody waits any more. Idempotent.
  void drop(BatchId batch);

 private:
  struct Sample {
    CaptureItem item;
    Member member;
    std::optional<core::CaptureId> capture;  // while it is filling
    std::optional<CallId> call;              // while it is prefilling
    std::string result;                      // JSON; empty: not known yet
  };
  struct Batch {
    std::vector<Sample> samples;
    std::size_t unanswered = 0;
    std::function<void(const std::vector<Sample>&)> done;
  };

  BatchId run(std::vector<Sample> samples, std::function<void(const std::vector<Sample>&)> done);
  void on_opened(BatchId batch, std::size_t index, Result<capture::Publisher::Opened> opened);
  void prefill(BatchId batch, std::size_t index);
  void on_prefilled(BatchId batch, std::size_t index, const Status& failure);
  void on_sealed(BatchId batch, std::size_t index, const Result<capture::Published>& sealed);
  void answer(BatchId batch, std::size_t index, std::string result);
  std::string published_json(const capture::Published& published) const;

  const CaptureGround& ground_;
  LiveCalls& calls_;
  http::Server& server_;
  std::map<BatchId, Batch> batches_;
  std::uint64_t last_batch_ = 0;
};

}  // namespace levada::serve
