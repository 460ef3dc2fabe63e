#include "serve/draft_routes.h"

#include "serve/error.h"
#include "serve/snapshot_json.h"

namespace levada::serve {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxPathBytes = 4096, kMaxDraftNameBytes = 256;

Json draft_json(const std::optional<DraftReport>& draft) {
  if (!draft) return nullptr;
  return {{"version", core::value(draft->profile.version)},
          {"name", draft->profile.name},
          {"path", draft->path},
          {"algorithm", draft->profile.algorithm},
          {"block_size", draft->profile.block_size},
          {"layers", draft->layers},
          {"parameters", draft->parameters},
          {"bytes", draft->bytes},
          {"since", draft->since_unix_s},
          {"speculation", speculation_json(draft->counts)}};
}

Json room_json(const std::optional<DraftRoomReport>& room) {
  if (!room) return nullptr;
  return {{"algorithm", room->algorithm}, {"layers", room->layers},         {"kv_width", room->kv_width},
          {"features", room->features},   {"parameters", room->parameters}, {"block_size", room->block_size}};
}

DraftControl::Done answering(const http::Responder& responder) {
  return [responder](const Result<DraftsReport>& report) {
    if (!report.ok()) return respond_error(responder, report.status());
    responder.respond(200, "application/json", dump(drafts_json(*report)));
  };
}

}  // namespace

Result<DraftOrder> parse_draft_order(simdjson::dom::object body) {
  FieldReader fields(body);
  std::optional<std::string> path, name;
  fields.text("path", kMaxPathBytes, &path);
  fields.text("name", kMaxDraftNameBytes, &name);
  if (!path || path->empty()) fields.fail("path", "is missing; give the folder of the draft, on the server's machine");
  if (path && path->find('\0') != std::string::npos) fields.fail("path", "must not hold a zero byte");
  if (name && name->empty()) fields.fail("name", "must not be empty; leave it out to take the folder's");
  LEVADA_RETURN_IF_ERROR(fields.status());
  return DraftOrder{std::move(*path), std::move(name)};
}

Json speculation_json(const sched::SpeculationTotals& totals) {
  const auto ratio = [](std::uint64_t above, std::uint64_t below) {
    return static_cast<double>(above) / static_cast<double>(below);
  };
  Json json = {{"steps", totals.steps}, {"drafts", totals.drafts}, {"accepted", totals.accepted}};
  json["accept_length"] = totals.steps == 0 ? Json() : Json(1 + ratio(totals.accepted, totals.steps));
  json["accept_rate"] = totals.drafts == 0 ? Json() : Json(ratio(totals.accepted, totals.drafts));
  return json;
}

Json drafts_json(const DraftsReport& report) {
  return {{"serving", draft_json(report.serving)},
          {"previous", draft_json(report.previous)},
          {"room", room_json(report.room)}};
}

bool DraftRoutes::served(const http::Responder& responder) const {
  if (drafts_ != nullptr) return true;
  respond_error(responder, Status(StatusCode::kFailedPrecondition,
                                  "this server was started without room for drafts: give it "
                                  "--speculative-draft-model-path or --speculative-draft-room"));
  return false;
}

void DraftRoutes::register_on(Router& router) {
  router.add("GET", "/drafts", Access::kAdmin, [this](http::Request, http::Responder responder) {
    if (served(responder)) drafts_->list(answering(responder));
  });
  router.add("POST", "/drafts", Access::kAdmin, [this](http::Request request, http::Responder responder) {
    if (served(responder)) load(std::move(request), responder);
  });
  router.add("DELETE", "/drafts", Access::kAdmin, [this](http::Request, http::Responder responder) {
    if (served(responder)) drafts_->unload(answering(responder));
  });
  router.add("POST", "/drafts/rollback", Access::kAdmin, [this](http::Request, http::Responder responder) {
    if (served(responder)) drafts_->roll_back(answering(responder));
  });
}

void DraftRoutes::load(http::Request request, const http::Responder& responder) {
  const std::size_t body_bytes = request.body.size();
  const Status taken = intake_.submit(
      body_bytes,
      [this, body = std::move(request.body), responder](simdjson::dom::parser& parser) -> std::function<void()> {
        auto order = [&]() -> Result<DraftOrder> {
          LEVADA_ASSIGN_OR_RETURN(const simdjson::dom::object object, parse_object(parser, body));
          return parse_draft_order(object);
        }();
        if (order.ok()) {
          drafts_->load(std::move(order).value(), answering(responder));
        } else {
          respond_error(responder, order.status());
        }
        return nullptr;
      });
  if (!taken.ok()) respond_error(responder, taken);
}

}  // namespace levada::serve
