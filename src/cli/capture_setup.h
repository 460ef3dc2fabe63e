// What: the capture side of a serving process: arena, store server, publisher.
// Owner: serve_command; must outlive the worker and the api.
// Thread: start-up only.
// Invariant: every failure is a Status whose sentence names the option at fault.
// Order of members is the order of construction.
#pragma once

#include <memory>

#include "capture/options.h"
#include "core/model_info.h"
#include "serve/capture_calls.h"
#include "store/store_service.h"

namespace levada::cli {

struct CaptureSetup {
  std::unique_ptr<store::StoreService> store;
  std::unique_ptr<capture::Publisher> publisher;
  std::unique_ptr<serve::CaptureGround> ground;
};

// All null unless captures are enabled.
Result<CaptureSetup> open_capture(const capture::Options& options, const store::Options& store,
                                  const core::ModelInfo& model, const Clock& clock, Metrics& metrics);

}  // namespace levada::cli
