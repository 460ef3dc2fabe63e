// What: what a newcomer sees when the server is up: the URL and snippets that can be pasted.
// Owner: none.
// Thread: main.
// Invariant: the snippets run as they stand, whatever the model is called, once the user puts the key in; a key itself
// is never shown.
#pragma once

#include <cstdint>
#include <string>

namespace levada::cli {

struct Ready {
  std::string host;
  std::uint16_t port = 0;
  std::string model;        // the name clients use
  bool chat = false;        // there is a chat template: the snippets may use /v1/chat/completions
  bool key_needed = false;  // requests need an API key
};

std::string ready_text(const Ready& ready);

}  // namespace levada::cli
