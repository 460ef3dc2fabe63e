#include "serve/api.h"

#include "base/log.h"
#include "grammar/compiler.h"
#include "serve/admin_routes.h"
#include "serve/draft_routes.h"
#include "serve/generation_routes.h"
#include "serve/health_probe.h"
#include "serve/openapi.h"
#include "serve/text_routes.h"

namespace levada::serve {

namespace {

ModelContext make_context(const Options& options, const ServedModel& served, const sched::Scheduler& scheduler) {
  ModelContext model;
  model.info = served.info;
  model.served_name = options.served_model_name.empty() ? served.info.path : options.served_model_name;
  model.context_length_tokens = served.context_length_tokens;
  model.tokenizer_folder = served.tokenizer_folder.empty() ? served.info.path : served.tokenizer_folder;
  model.tokenizer = served.tokenizer;
  model.chat_template = served.chat_template;
  model.check_fits = [&scheduler](std::int32_t prompt_tokens) { return scheduler.check_fits(prompt_tokens); };
  model.max_batch_prompts = options.max_batch_prompts;
  model.return_hidden_states = options.enable_return_hidden_states;
  if (const auto compat = openai_compat_of(options.openai_compat); compat.ok()) model.compat = *compat;
  model.normalize_tool_choice = options.openai_normalize_tool_choice;
  if (options.openai_chat_default_max_tokens > 0) {
    model.chat_default_max_tokens = options.openai_chat_default_max_tokens;
  }
  auto style = reply_style(options.tool_call_parser, options.reasoning_parser, served.tokenizer);
  if (style.ok()) model.replies = std::move(style).value();  // check_options() saw the names
  LEVADA_LOG_INFO("serve: tool calls are read as ", model.replies.calls_name, ", reasoning as ",
                  model.replies.reasoning_name);
  if (served.tokenizer != nullptr) {
    model.max_text_bytes = longest_fitting_text_bytes(*served.tokenizer, served.context_length_tokens);
  }
  return model;
}

// An answer of some form ends with what ends any answer of the model.
std::unique_ptr<grammar::Compiler> make_grammars(const ServedModel& served) {
  if (served.tokenizer == nullptr) return nullptr;
  std::vector<core::Token> stops = served.info.eos_token_ids;
  if (stops.empty() && served.tokenizer->eos()) stops.push_back(*served.tokenizer->eos());
  if (stops.empty()) return nullptr;
  return std::make_unique<grammar::Compiler>(*served.tokenizer, served.info.vocab_size, std::move(stops),
                                             grammar::Compiler::Limits{});
}

}  // namespace

struct Api::Parts {
  Parts(const Options& options, const ServedModel& served, ServerFacts facts, const Ground& ground)
      : grammars(make_grammars(served)),
        model(make_context(options, served, ground.scheduler)),
        keys(options.api_key, options.admin_api_key),
        metrics(ground.metrics),
        unix_s([&clock = ground.clock, from_us = ground.clock.now_us(), from_s = facts.started_unix_s] {
          return from_s + (clock.now_us() - from_us) / 1'000'000;
        }),
        calls(ground.scheduler, ground.clock, metrics, unix_s),
        probe(calls, ground.scheduler, ground.server, ground.clock, options.health_timeout_s),
        captures(ground.capture == nullptr ? nullptr
                                           : std::make_unique<CaptureCalls>(*ground.capture, calls, ground.server)),
        intake(ground.server),
        generation(model, intake, calls, ground.clock, ground.capture == nullptr ? nullptr : &ground.capture->terms,
                   captures.get(), ground.samples),
        text(model, intake),
        info(model, std::move(facts), ground.scheduler, ground.metrics, unix_s),
        admin(ground.scheduler, calls, intake, ground.server, ground.clock),
        drafts(ground.drafts, intake) {
    model.grammars = grammars.get();
  }

  const std::unique_ptr<grammar::Compiler> grammars;
  ModelContext model;
  AccessKeys keys;
  RequestMetrics metrics;
  const std::function<std::int64_t()> unix_s;
  LiveCalls calls;
  HealthProbe probe;
  const std::unique_ptr<CaptureCalls> captures;
  Intake intake;
  GenerationRoutes generation;
  TextRoutes text;
  InfoRoutes info;
  AdminRoutes admin;
  DraftRoutes drafts;
  std::string openapi;
};

Api::Api(const Options& options, const ServedModel& model, ServerFacts facts, const Ground& ground) {
  const std::string version = facts.version;
  parts_ = std::make_unique<Parts>(options, model, std::move(facts), ground);
  Parts& parts = *parts_;
  ground.outbox.connect([&parts](const std::vector<core::OutputDelta>& deltas) { parts.calls.on_outputs(deltas); });
  Router router(ground.server, parts.keys);
  parts.generation.register_on(router);
  parts.text.register_on(router);
  parts.info.register_on(router);
  parts.admin.register_on(router);
  parts.drafts.register_on(router);
  router.add("GET", "/health_generate", Access::kUser,
             [&parts](http::Request, http::Responder responder) { parts.probe.handle(responder); });
  router.add("GET", "/openapi.json", Access::kUser, [&parts](http::Request, http::Responder responder) {
    responder.respond(200, "application/json", parts.openapi);
  });
  parts.openapi = openapi_document(parts.model, router.routes(), version);
}

Api::~Api() = default;

}  // namespace levada::serve
