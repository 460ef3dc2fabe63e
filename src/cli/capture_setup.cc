#include "cli/capture_setup.h"

#include <cstdlib>

#include "base/log.h"

namespace levada::cli {
namespace {

// A secret: it comes from the environment, never from flags or recipes.
std::string capture_token() {
  const char* const token = std::getenv("SGLANG_SPEC_CAPTURE_TOKEN");
  return token == nullptr ? "" : token;
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
  LEVADA_ASSIGN_OR_RETURN(setup.store, store::StoreService::start(store, terms.token, clock, metrics));
  store::Arena& arena = setup.store->arena();
  setup.publisher = std::make_unique<capture::Publisher>(
      arena, capture::Publisher::Options{terms.limits, options.capture_space_wait_s * 1'000'000}, metrics);
  setup.ground = std::make_unique<serve::CaptureGround>(serve::CaptureGround{
      *setup.publisher, terms, arena.incarnation(), arena.capacity_bytes(), setup.store->tcp_url(),
      setup.store->shm_url(), setup.store->ucx_url(), [store = setup.store.get()] { return store->ucx_transports(); }});
  LEVADA_LOG_INFO("captures into ", store.arena_bytes >> 20, " MiB as \"", options.spec_capture_store_id, "\" ",
                  setup.ground->tcp_url, " ", setup.ground->shm_url, " ", setup.ground->ucx_url);
  return setup;
}

}  // namespace levada::cli
