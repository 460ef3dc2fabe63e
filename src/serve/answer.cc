#include "serve/answer.h"

#include "serve/error.h"

namespace levada::serve {

Answer::Answer(const CallSpec& call, std::int64_t created_unix_s)
    : format_(make_format(call, created_unix_s)),
      folds_(call.members.size()),
      opened_(call.members.size(), false),
      unfinished_(call.members.size()),
      dialect_(call.dialect),
      stream_(call.stream),
      wants_ids_(call.wants_ids) {
  for (const Member& member : call.members) arrivals_us_.push_back(member.request.arrival_us);
}

bool Answer::fails(const core::Finish& finish) const {
  switch (finish.reason) {
    case core::FinishReason::kStop:
    case core::FinishReason::kLength: return false;
    case core::FinishReason::kError: return true;
    case core::FinishReason::kAbort: break;
  }
  return !format_->answers_aborts() || finish.status.code() != StatusCode::kAborted;
}

Emission Answer::on_delta(std::size_t member, const core::OutputDelta& delta, std::int64_t now_us) {
  LEVADA_CHECK(!done_, "a call that is answered takes no more deltas");
  folds_[member].fold(delta, now_us - arrivals_us_[member]);
  if (delta.finish) {
    if (fails(*delta.finish)) return on_failure(delta.finish->status);
    --unfinished_;
  }
  Emission emission = phrase_delta(member, delta);
  if (emission.end && wants_ids_) {
    for (const AnswerFold& fold : folds_) emission.answer_ids.push_back(fold.token_ids);
  }
  return emission;
}

Emission Answer::phrase_delta(std::size_t member, const core::OutputDelta& delta) {
  if (stream_) return stream_delta(member, delta);
  Emission emission;
  if (unfinished_ > 0) return emission;
  done_ = true;
  emission.status = 200;
  emission.end = true;
  emission.bytes = format_->whole(folds_);
  return emission;
}

Emission Answer::stream_delta(std::size_t member, const core::OutputDelta& delta) {
  Emission emission;
  if (!streaming_) {
    streaming_ = true;
    emission.status = 200;
    emission.stream = true;
  }
  if (!opened_[member]) {
    opened_[member] = true;
    format_->append_opening(member, emission.bytes);
  }
  format_->append_events(member, folds_[member], delta, emission.bytes);
  if (unfinished_ > 0) return emission;
  done_ = true;
  format_->append_closing(folds_, emission.bytes);
  if (!has_named_events(dialect_)) emission.bytes += "data: [DONE]\n\n";
  emission.end = true;
  return emission;
}

Emission Answer::on_failure(const Status& failure) {
  done_ = true;
  const Status named = failure.ok() ? internal_error("the request failed without a reason") : failure;
  Emission emission;
  emission.end = true;
  emission.failure = named;
  if (streaming_) {
    emission.bytes = has_named_events(dialect_) ? named_error_event(named) : error_event(named);
  } else {
    emission.status = http_status(named);
    emission.bytes = dialect_ == Dialect::kMessages ? typed_error_body(named) : error_body(named);
  }
  return emission;
}

}  // namespace levada::serve
