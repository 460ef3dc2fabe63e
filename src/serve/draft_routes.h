// What: the endpoints that load, show, unload and roll back drafts of a running server.
// Owner: Api.
// Thread: handlers on the I/O thread; answers come from the DraftControl's.
// Invariant: each answers with the state it left, the one form of drafts_json().
// Fields are listed in docs/api.md.
#pragma once

#include <nlohmann/json.hpp>

#include "serve/draft_control.h"
#include "serve/field_reader.h"
#include "serve/intake.h"
#include "serve/router.h"

namespace levada::serve {

// The body of POST /drafts.
Result<DraftOrder> parse_draft_order(simdjson::dom::object body);
nlohmann::ordered_json drafts_json(const DraftsReport& report);
// {steps, drafts, accepted, accept_length, accept_rate}; the last two are null before there is anything to divide.
nlohmann::ordered_json speculation_json(const sched::SpeculationTotals& totals);

class DraftRoutes {
 public:
  DraftRoutes(DraftControl* drafts, Intake& intake) : drafts_(drafts), intake_(intake) {}

  void register_on(Router& router);

 private:
  void load(http::Request request, const http::Responder& responder);
  // kFailedPrecondition, and nothing else, where no drafts can be loaded.
  bool served(const http::Responder& responder) const;

  DraftControl* drafts_;  // null: this server takes no drafts
  Intake& intake_;
};

}  // namespace levada::serve
