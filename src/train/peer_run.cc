#include "train/peer_run.h"

#include <cstring>

#include "base/check.h"
#include "train/consumer_trainer.h"
#include "train/dealt_source.h"

namespace levada::train {

Status start_peers(SocketCollective& ranks, std::int64_t total_steps) {
  for (std::int64_t rank = 1; rank < ranks.world(); ++rank) {
    LEVADA_RETURN_IF_ERROR(ranks.give(rank, {std::as_bytes(std::span(&total_steps, 1))}));
  }
  return {};
}

Status run_peer(const ConsumerRunRequest& request) {
  SocketCollective& ranks = *request.ranks;
  Options options = request.trainer;
  LEVADA_ASSIGN_OR_RETURN(const auto begin, ranks.take());
  if (!begin) return {};
  LEVADA_CHECK(begin->size() == sizeof options.total_steps, "rank 0 says how long the run is first");
  std::memcpy(&options.total_steps, begin->data(), sizeof options.total_steps);
  LEVADA_ASSIGN_OR_RETURN(const auto trainer, open_trainer(request, options));
  TakenSource source(ranks);
  for (;;) {
    LEVADA_ASSIGN_OR_RETURN(const std::vector<Sample> samples, source.next(options.samples_per_step()));
    if (samples.empty()) return {};
    LEVADA_RETURN_IF_ERROR(trainer->step(samples).status());
  }
}

}  // namespace levada::train
