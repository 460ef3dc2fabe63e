#include "serve/info_routes.h"

#include "serve/chat_page.h"
#include "serve/draft_routes.h"
#include "serve/error.h"
#include "serve/snapshot_json.h"

namespace levada::serve {

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string InfoRoutes::models() const {
  return dump({{"object", "list"},
               {"data", Json::array({{{"id", model_.served_name},
                                      {"object", "model"},
                                      {"created", facts_.started_unix_s},
                                      {"owned_by", "levada"},
                                      {"root", model_.info.path},
                                      {"max_model_len", model_.context_length_tokens}}})}});
}

std::string InfoRoutes::model_info() const {
  return dump({{"model_path", model_.info.path},
               {"tokenizer_path", model_.tokenizer_folder},
               {"served_model_name", model_.served_name},
               {"is_generation", true},
               {"has_chat_template", model_.chat_template != nullptr},
               {"preferred_sampling_params", nullptr},
               {"weight_version", "default"},
               {"model_type", model_.info.architecture},
               {"weights_identity", model_.info.weights_identity},
               {"weight_dtype", std::string(to_string(model_.info.weight_dtype))},
               {"context_length", model_.context_length_tokens},
               {"vocab_size", model_.info.vocab_size},
               {"hidden_size", model_.info.hidden_size},
               {"num_hidden_layers", model_.info.num_layers},
               {"parameters", model_.info.parameters},
               {"eos_token_ids", model_.info.eos_token_ids}});
}

std::string InfoRoutes::server_info(const sched::Snapshot& snapshot) const {
  Json info;
  for (const auto& [name, value] : facts_.arguments) info[name] = Json::parse(value);
  if (facts_.capture) info["capture"] = Json::parse(facts_.capture());
  info["version"] = facts_.version;
  info["parsers"] = {{"tool_calls", model_.replies.calls_name}, {"reasoning", model_.replies.reasoning_name}};
  info["health"] = snapshot.health.ok() ? "ok" : snapshot.health.message();
  info["kernels_backend"] = facts_.kernels_backend;
  info["served_model_name"] = model_.served_name;
  info["context_length"] = model_.context_length_tokens;
  info["max_total_num_tokens"] = std::int64_t{snapshot.total_pages} * snapshot.page_size_tokens;
  info["speculation"] = speculation_json(snapshot.speculation);
  info["speculation"]["draft"] = snapshot.draft.version == core::kNoDraft ? Json() : Json(snapshot.draft.name);
  info["speculation"]["note"] = snapshot.speculation_note;
  info["internal_states"] = Json::array({snapshot_json(snapshot)});
  return dump(info);
}

void InfoRoutes::register_on(Router& router) {
  const auto fixed = [&](const char* path, Access access, const char* type, std::string body) {
    router.add("GET", path, access, [type, body = std::move(body)](http::Request, http::Responder responder) {
      responder.respond(200, type, body);
    });
  };
  fixed("/", Access::kOpen, "text/html; charset=utf-8", kChatPage);
  // The control channel is for a client that loses its first reply: it can free what it never heard of.
  Json well = {{"status", "ok"}};
  if (!facts_.control.empty()) well["control"] = facts_.control;
  for (const char* path : {"/health", "/ping", "/ready"}) {
    router.add("GET", path, Access::kOpen, [this, well = dump(well)](http::Request, http::Responder responder) {
      if (const Status health = scheduler_.health(); !health.ok()) return respond_error(responder, health);
      responder.respond(200, "application/json", well);
    });
  }
  fixed("/v1/models", Access::kUser, "application/json", models());
  for (const char* path : {"/model_info", "/get_model_info"}) {
    fixed(path, Access::kUser, "application/json", model_info());
  }
  for (const char* path : {"/server_info", "/get_server_info"}) {
    router.add("GET", path, Access::kUser, [this](http::Request, http::Responder responder) {
      scheduler_.inspect([this, responder](const sched::Snapshot& snapshot) {
        responder.respond(200, "application/json", server_info(snapshot));
      });
    });
  }
  router.add("GET", "/v1/loads", Access::kUser, [this](http::Request, http::Responder responder) {
    scheduler_.inspect([this, responder](const sched::Snapshot& snapshot) {
      responder.respond(200, "application/json", dump(loads_json(snapshot, facts_.version, unix_s_())));
    });
  });
  router.add("GET", "/metrics", Access::kUser, [this](http::Request, http::Responder responder) {
    if (facts_.before_metrics) facts_.before_metrics();
    responder.respond(200, "text/plain; version=0.0.4; charset=utf-8", metrics_.render());
  });
}

}  // namespace levada::serve
