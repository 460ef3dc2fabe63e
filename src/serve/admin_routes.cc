#include "serve/admin_routes.h"

#include <cmath>
#include <cstdlib>

#include "serve/snapshot_json.h"

namespace levada::serve {

namespace {

constexpr std::chrono::milliseconds kFlushRetry{50};
constexpr double kMaxFlushTimeoutS = 3600;

Result<double> flush_timeout_s(const http::Request& request) {
  const auto given = request.query.find("timeout");
  if (given == request.query.end()) return 0.0;
  char* end = nullptr;
  const double seconds = std::strtod(given->second.c_str(), &end);
  const bool whole = end != given->second.c_str() && *end == '\0';
  if (!whole || !std::isfinite(seconds) || seconds < 0 || seconds > kMaxFlushTimeoutS) {
    return invalid_argument("must be a number of seconds in [0, 3600], got '" + given->second + "'", "timeout");
  }
  return seconds;
}

}  // namespace

Result<AbortOrder> parse_abort(simdjson::dom::object body) {
  FieldReader fields(body);
  AbortOrder order;
  fields.text("rid", SIZE_MAX, &order.rid);
  fields.boolean("abort_all", &order.all);
  if (!order.all && !order.rid) fields.fail("rid", "is missing; give the request's rid, or abort_all: true");
  LEVADA_RETURN_IF_ERROR(fields.status());
  return order;
}

void AdminRoutes::register_on(Router& router) {
  const auto on_flush = [this](http::Request request, http::Responder responder) {
    const Result<double> seconds = flush_timeout_s(request);
    if (!seconds.ok()) return respond_error(responder, seconds.status());
    flush(responder, clock_.now_us() + static_cast<std::int64_t>(seconds.value() * 1e6));
  };
  router.add("GET", "/flush_cache", Access::kAdmin, on_flush);
  router.add("POST", "/flush_cache", Access::kAdmin, on_flush);
  router.add("POST", "/abort_request", Access::kAdmin, [this](http::Request request, http::Responder responder) {
    abort_request(std::move(request), responder);
  });
  router.add("GET", "/debug/audit", Access::kAdmin,
             [this](http::Request, http::Responder responder) { audit(responder); });
}

void AdminRoutes::flush(const http::Responder& responder, std::int64_t deadline_us) {
  scheduler_.flush_cache([this, responder, deadline_us](Status flushed) {
    if (flushed.ok()) {
      return responder.respond(200, "application/json", "{\"success\":true,\"message\":\"the cache is flushed\"}");
    }
    if (clock_.now_us() >= deadline_us || responder.client_gone()) return respond_error(responder, flushed);
    server_.post_after(kFlushRetry, [this, responder, deadline_us] { flush(responder, deadline_us); });
  });
}

void AdminRoutes::abort_request(http::Request request, const http::Responder& responder) {
  const std::size_t body_bytes = request.body.size();
  const Status taken = intake_.submit(
      body_bytes,
      [this, body = std::move(request.body), responder](simdjson::dom::parser& parser) -> std::function<void()> {
        const auto order = [&]() -> Result<AbortOrder> {
          LEVADA_ASSIGN_OR_RETURN(const simdjson::dom::object object, parse_object(parser, body));
          return parse_abort(object);
        }();
        if (!order.ok()) {
          respond_error(responder, order.status());
          return nullptr;
        }
        return [this, order = order.value(), responder] {
          order.all ? calls_.abort_all() : calls_.abort(*order.rid);
          responder.respond(200, "application/json", "{\"success\":true}");
        };
      });
  if (!taken.ok()) respond_error(responder, taken);
}

void AdminRoutes::audit(const http::Responder& responder) {
  scheduler_.audit([responder](const sched::Snapshot& snapshot, Status audited) {
    nlohmann::ordered_json report = {{"ok", audited.ok()}, {"message", audited.ok() ? "" : audited.message()}};
    report["snapshot"] = snapshot_json(snapshot);
    responder.respond(audited.ok() ? 200 : 500, "application/json", dump(report));
  });
}

}  // namespace levada::serve
