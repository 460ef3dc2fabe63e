#include "cli/capture_setup.h"

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "core/sample_ref.h"

namespace levada::cli {
namespace {

// A secret: it comes from the environment, never from flags or recipes.
std::string capture_token() {
  const char* const token = std::getenv("SGLANG_SPEC_CAPTURE_TOKEN");
  return token == nullptr ? "" : token;
}

// A full arena empties itself, one that is too small for a sample never takes it: better said now than at that sample.
Status check_largest_sample(const serve::CaptureTerms& terms, const core::ModelInfo& model, const store::Arena& arena) {
  const auto tokens = static_cast<std::uint64_t>(model.context_length_tokens);
  const std::uint64_t states = terms.default_layers.size() + 1;  // and the final norm
  const std::uint64_t row = states * static_cast<std::uint64_t>(model.hidden_size) * bytes_of(terms.dtype) + 16;
  const std::uint64_t largest = std::min(tokens * row, static_cast<std::uint64_t>(terms.limits.max_sample_bytes));
  if (largest <= arena.capacity_bytes()) return {};
  return invalid_argument("a prompt of " + std::to_string(tokens) + " tokens makes a sample of up to " +
                              std::to_string(largest) + " bytes, the arena has " +
                              std::to_string(arena.capacity_bytes()) +
                              ": raise --arena-bytes or lower --spec-capture-max-sample-bytes",
                          "arena_bytes");
}

}  // namespace

Result<CaptureSetup> open_capture(const capture::Options& options, const store::Options& store,
                                  const core::ModelInfo& model, const Clock& clock, Metrics& metrics) {
  CaptureSetup setup;
  if (!options.enable_spec_capture) return setup;
  serve::CaptureTerms terms;
  LEVADA_ASSIGN_OR_RETURN(terms.default_layers, capture::aux_layers(options, model.num_layers));
  terms.limits = {options.spec_capture_store_id, model.num_layers, model.hidden_size,
                  options.spec_capture_max_sample_bytes};
  terms.dtype = model.weight_dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
  terms.token = capture_token();
  const auto keys_of_run = [store_id = options.spec_capture_store_id](std::string_view run) {
    return core::keys_of_run(store_id, run);
  };
  LEVADA_ASSIGN_OR_RETURN(setup.store, store::StoreService::start(store, terms.token, clock, metrics, keys_of_run));
  store::Arena& arena = setup.store->arena();
  if (arena.device() != nullptr) LEVADA_RETURN_IF_ERROR(check_largest_sample(terms, model, arena));
  setup.publisher = std::make_unique<capture::Publisher>(
      arena, capture::Publisher::Options{terms.limits, options.capture_space_wait_s * 1'000'000}, metrics);
  setup.ground = std::make_unique<serve::CaptureGround>(serve::CaptureGround{
      *setup.publisher, terms, arena.incarnation(), arena.capacity_bytes(), setup.store->tcp_url(),
      setup.store->shm_url(), setup.store->ucx_url(), [store = setup.store.get()] { return store->ucx_transports(); },
      setup.store->share_kind(), setup.store->control()});
  LEVADA_LOG_INFO("captures into ", arena.capacity_bytes() >> 20, " MiB as \"", options.spec_capture_store_id, "\" ",
                  setup.ground->tcp_url, " ", setup.ground->shm_url, " ", setup.ground->ucx_url);
  return setup;
}

}  // namespace levada::cli
