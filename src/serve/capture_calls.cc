#include "serve/capture_calls.h"

#include <nlohmann/json.hpp>

#include "base/hex.h"

namespace levada::serve {

namespace {

using Json = nlohmann::ordered_json;

// What a client can mend only by asking for something else.
bool is_final(StatusCode code) {
  return code == StatusCode::kInvalidArgument || code == StatusCode::kPayloadTooLarge ||
         code == StatusCode::kFailedPrecondition;
}

std::string error_json(const CaptureItem& item, const Status& failure) {
  const std::string where = failure.field().empty() ? "" : failure.field() + ": ";
  return Json{{"sample_id", item.spec.sample_id},
              {"error", where + failure.message()},
              {"retryable", !is_final(failure.code())}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The capture's rows are the answer; no text is sampled for the client.
void append_row(const Member& member, const std::string& result, bool in_list, std::string& out) {
  out += R"({"text":"","output_ids":[],"meta_info":{"id":)" + Json(member.rid).dump() +
         R"(,"finish_reason":{"type":"length","length":0},"prompt_tokens":)" +
         std::to_string(member.request.prompt.size()) + R"(,"completion_tokens":0,"cached_tokens":0,"spec_capture":)";
  if (in_list) out += '[';
  out += result;
  out += in_list ? "]}}" : "}}";
}

Json store_json(const CaptureGround& ground) {
  Json store = Json::object();
  if (!ground.tcp_url.empty()) store["tcp"] = ground.tcp_url;
  if (!ground.shm_url.empty()) store["shm"] = ground.shm_url;
  if (!ground.ucx_url.empty()) store["ucx"] = ground.ucx_url;
  return store;
}

// Upstream's two names for one thing. The session would be Mooncake's transfer engine; ours is reached by `store`, and
// the store's TCP address stands in for it where there is one.
void add_arena(const CaptureGround& ground, Json& to) {
  if (ground.share_kind.empty() || ground.control.empty()) return;
  constexpr std::string_view kTcp = "tcp://";
  const std::string session = ground.tcp_url.empty() ? ground.control : ground.tcp_url.substr(kTcp.size());
  const Json arena = {{"session", session}, {"control", ground.control}};
  to["nvlink"] = arena;
  to["arena"] = arena;
}

std::vector<std::int32_t> layers_of(const capture::SampleSpec& spec, bool& final_norm) {
  std::vector<std::int32_t> layers = capture::states_of(spec);
  final_norm = !layers.empty() && layers.front() == capture::kFinalNorm;
  if (final_norm) layers.erase(layers.begin());
  return layers;
}

}  // namespace

std::string capture_facts(const CaptureGround& ground) {
  Json facts{{"enabled", true},
             {"store_id", ground.terms.limits.store_id},
             {"incarnation", hex64(ground.incarnation)},
             {"arena_bytes", ground.arena_bytes},
             {"store", store_json(ground)},
             {"aux_layer_ids", ground.terms.default_layers},
             {"dtype", to_string(ground.terms.dtype)},
             {"max_sample_bytes", ground.terms.limits.max_sample_bytes}};
  if (!ground.ucx_url.empty()) facts["ucx_transports"] = ground.ucx_transports();
  if (!ground.share_kind.empty()) facts["share_kind"] = ground.share_kind;
  if (!ground.control.empty()) facts["control"] = ground.control;
  return facts.dump();
}

void CaptureCalls::start(CallSpec call, CaptureBody body, const http::Responder& responder) {
  LEVADA_CHECK(body.items.size() == call.members.size(), "an item for every prompt");
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < body.items.size(); ++i) {
    samples.push_back({std::move(body.items[i]), std::move(call.members[i]), {}, {}, {}});
  }
  const auto respond = [responder, rows_in_list = call.batch,
                        results_in_lists = body.results_in_lists](const std::vector<Sample>& answered) {
    std::string rows;
    for (const Sample& sample : answered) {
      if (!rows.empty()) rows += ',';
      append_row(sample.member, sample.result, results_in_lists, rows);
    }
    responder.respond(200, "application/json", rows_in_list ? '[' + rows + ']' : std::move(rows));
  };
  const BatchId id = run(std::move(samples), respond);
  responder.on_disconnect([this, id] { drop(id); });
}

CaptureCalls::BatchId CaptureCalls::capture(CaptureItem item, std::vector<core::Token> tokens,
                                            std::function<void(std::string)> done) {
  Sample sample{std::move(item), {}, {}, {}, {}};
  sample.member.request.prompt = std::move(tokens);
  std::vector<Sample> samples;
  samples.push_back(std::move(sample));
  return run(std::move(samples),
             [done = std::move(done)](const std::vector<Sample>& answered) { done(answered.front().result); });
}

CaptureCalls::BatchId CaptureCalls::run(std::vector<Sample> samples,
                                        std::function<void(const std::vector<Sample>&)> done) {
  const BatchId id{++last_batch_};
  Batch& batch = batches_[id];
  batch.unanswered = samples.size();
  batch.samples = std::move(samples);
  batch.done = std::move(done);
  for (std::size_t i = 0, count = batch.samples.size(); i < count; ++i) {
    const Sample& sample = batch.samples[i];
    const auto on_answer = [this, id, i](Result<capture::Publisher::Opened> opened) {
      on_opened(id, i, std::move(opened));
    };
    // Posted in either case, so that nobody hears of a batch before its id is known.
    if (!sample.item.error.ok()) {
      server_.post([on_answer, error = sample.item.error] { on_answer(error); });
      continue;
    }
    ground_.publisher.open(
        sample.item.spec, static_cast<std::int32_t>(sample.member.request.prompt.size()),
        [on_answer, &server = server_](Result<capture::Publisher::Opened> opened) {
          server.post([on_answer, opened = std::move(opened)]() mutable { on_answer(std::move(opened)); });
        });
  }
  return id;
}

void CaptureCalls::on_opened(BatchId id, std::size_t index, Result<capture::Publisher::Opened> opened) {
  const auto found = batches_.find(id);
  if (found == batches_.end()) {  // the client went while it waited for space
    if (opened.ok() && std::holds_alternative<core::CaptureId>(*opened)) {
      ground_.publisher.drop(std::get<core::CaptureId>(*opened));
    }
    return;
  }
  Sample& sample = found->second.samples[index];
  if (!opened.ok()) return answer(id, index, error_json(sample.item, opened.status()));
  if (auto* published = std::get_if<capture::Published>(&opened.value())) {
    return answer(id, index, published_json(*published));
  }
  sample.capture = std::get<core::CaptureId>(*opened);
  prefill(id, index);
}

void CaptureCalls::prefill(BatchId id, std::size_t index) {
  Sample& sample = batches_.at(id).samples[index];
  CallSpec call;
  call.id = sample.member.rid;
  call.members.push_back(sample.member);
  core::Request& request = call.members.front().request;
  core::CaptureRequest capture;
  capture.id = *sample.capture;
  capture.layers = layers_of(sample.item.spec, capture.final_norm);
  request.capture = std::move(capture);
  request.sampling.max_new_tokens = 1;  // the prefill's own; nobody reads it
  const CallId started = calls_.start(std::move(call), [this, id, index](const Emission& emission) {
    if (emission.end) on_prefilled(id, index, emission.failure);
  });
  if (const auto found = batches_.find(id); found != batches_.end() && found->second.samples[index].capture) {
    found->second.samples[index].call = started;
  }
}

void CaptureCalls::on_prefilled(BatchId id, std::size_t index, const Status& failure) {
  const auto found = batches_.find(id);
  if (found == batches_.end()) return;
  Sample& sample = found->second.samples[index];
  const core::CaptureId capture = *std::exchange(sample.capture, std::nullopt);
  sample.call.reset();
  if (!failure.ok()) {
    ground_.publisher.drop(capture);
    return answer(id, index, error_json(sample.item, failure));
  }
  ground_.publisher.seal(capture, [this, &server = server_, id, index](Result<capture::Published> sealed) {
    server.post([this, id, index, sealed = std::move(sealed)] { on_sealed(id, index, sealed); });
  });
}

void CaptureCalls::on_sealed(BatchId id, std::size_t index, const Result<capture::Published>& sealed) {
  const auto found = batches_.find(id);
  if (found == batches_.end()) return;  // published; the journal answers when the client asks again
  answer(id, index,
         sealed.ok() ? published_json(sealed.value()) : error_json(found->second.samples[index].item, sealed.status()));
}

void CaptureCalls::answer(BatchId id, std::size_t index, std::string result) {
  Batch& batch = batches_.at(id);
  batch.samples[index].result = std::move(result);
  if (--batch.unanswered > 0) return;
  const Batch answered = std::move(batch);
  batches_.erase(id);
  answered.done(answered.samples);
}

void CaptureCalls::drop(BatchId id) {
  const auto found = batches_.find(id);
  if (found == batches_.end()) return;
  const Batch batch = std::move(found->second);
  batches_.erase(found);
  for (const Sample& sample : batch.samples) {
    if (sample.call) calls_.drop(*sample.call, Status(StatusCode::kAborted, "the client closed the connection"));
    if (sample.capture) ground_.publisher.drop(*sample.capture);
  }
}

std::string CaptureCalls::published_json(const capture::Published& published) const {
  Json features = Json::object();
  for (std::size_t i = 0; i < published.tensors.size(); ++i) {
    const core::StoredTensor& tensor = published.tensors[i];
    Json& feature = features[tensor.name];
    feature = {{"shape", tensor.shape}, {"dtype", to_string(tensor.dtype)}, {"checksum", hex64(tensor.checksum)}};
    if (!published.addresses.empty()) feature["address"] = published.addresses[i];
  }
  Json result = {{"sample_id", published.sample_id},
                 {"store_id", published.store_id},
                 {"gen", published.generation},
                 {"aux_layer_ids", published.aux_layer_ids},
                 {"features", features},
                 {"incarnation", hex64(published.incarnation)},
                 {"store", store_json(ground_)}};
  add_arena(ground_, result);
  return result.dump();
}

}  // namespace levada::serve
