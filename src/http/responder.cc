#include "http/responder_state.h"

namespace levada::http {

void Responder::respond(int status, std::string_view content_type, std::string body) const {
  state_->connection->respond(state_->exchange, status, content_type, std::move(body));
}

void Responder::start_stream(int status, std::string_view content_type) const {
  state_->connection->start_stream(state_->exchange, status, content_type);
}

void Responder::write(std::string bytes) const { state_->connection->write(state_->exchange, std::move(bytes)); }

void Responder::end() const { state_->connection->end(state_->exchange); }

void Responder::on_disconnect(std::function<void()> callback) const {
  state_->connection->on_disconnect(state_->exchange, std::move(callback));
}

bool Responder::client_gone() const { return state_->connection->client_gone(); }

std::size_t Responder::pending_bytes() const { return state_->connection->pending_bytes(); }

}  // namespace levada::http
