// What: what a newcomer sees when the server is up: the URL and snippets that can be pasted.
// Owner: none.
// Thread: main.
// Invariant: printed once the port accepts connections.
#pragma once

#include <cstdint>
#include <string>

namespace levada::cli {

// `chat`: the model has a chat template, so the snippets may use /v1/chat/completions.
void print_ready(const std::string& host, std::uint16_t port, const std::string& model, bool chat);

}  // namespace levada::cli
