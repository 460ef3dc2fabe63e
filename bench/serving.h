// What: Serving, scheduler and worker over a model without a server before them: submits a batch of requests and says when
// their tokens came.
// Owner: a bench; owns model, pool, worker, scheduler and its thread.
// Thread: the owner's.
// Invariant: run() returns when every request has ended as asked; a request that ended otherwise is its error.
#pragma once

#include <memory>

#include "base/status.h"
#include "model/model.h"

namespace levada::text {
class Tokenizer;
}

namespace levada::bench {

struct Load {
  std::int32_t requests = 1, prompt_tokens = 1, new_tokens = 1;
  bool captured = false;  // every prompt's rows, and a request ends when they are readable
};

struct Timing {
  double first_s = 0;                // from submission until every request had its first token
  std::int64_t tokens_at_first = 0;  // of all requests, by then
  double end_s = 0;                  // until the last token
};

class Captures;

class Serving {
 public:
  // `captures`: for captured loads; outlives it.
  Serving(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool, std::int32_t max_requests,
          std::int32_t chunk_tokens, const text::Tokenizer* tokenizer, Captures* captures = nullptr);
  ~Serving();

  Result<Timing> run(const Load& load);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada::bench
