#include "http/responder_state.h"

namespace levada::http {

void Responder::respond(int status, std::string_view content_type, std::string body) const {
  state_->exchange->respond(state_->number, status, content_type, std::move(body));
}

void Responder::start_stream(int status, std::string_view content_type) const {
  state_->exchange->start_stream(state_->number, status, content_type);
}

void Responder::write(std::string bytes) const { state_->exchange->write(state_->number, std::move(bytes)); }

void Responder::end() const { state_->exchange->end(state_->number); }

void Responder::on_disconnect(std::function<void()> callback) const {
  state_->exchange->on_disconnect(state_->number, std::move(callback));
}

bool Responder::client_gone() const { return state_->exchange->client_gone(); }

std::size_t Responder::pending_bytes() const { return state_->exchange->pending_bytes(); }

}  // namespace levada::http
