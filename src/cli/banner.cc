#include "cli/banner.h"

#include <cstdio>

namespace levada::cli {
namespace {

std::string url_of(const std::string& host, std::uint16_t port) {
  const bool any = host == "0.0.0.0" || host == "::";
  const bool v6 = host.find(':') != std::string::npos && !any;
  return "http://" + (any ? "127.0.0.1" : v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace

void print_ready(const std::string& host, std::uint16_t port, const std::string& model, bool chat) {
  const std::string url = url_of(host, port);
  std::printf("\nlevada is ready: %s   (chat page; Ctrl-C stops)\n\n", url.c_str());
  if (chat) {
    std::printf(
        "curl -N %s/v1/chat/completions -H 'Content-Type: application/json' -d '{\n"
        "  \"model\": \"%s\", \"stream\": true,\n"
        "  \"messages\": [{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}]}'\n\n"
        "python3 - <<'PY'   # pip install openai\n"
        "from openai import OpenAI\n"
        "client = OpenAI(base_url=\"%s/v1\", api_key=\"none\")\n"
        "answer = client.chat.completions.create(\n"
        "    model=\"%s\", messages=[{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}])\n"
        "print(answer.choices[0].message.content)\n"
        "PY\n\n",
        url.c_str(), model.c_str(), url.c_str(), model.c_str());
  } else {
    std::printf(
        "curl %s/v1/completions -H 'Content-Type: application/json' -d '{\n"
        "  \"model\": \"%s\", \"prompt\": \"Once upon a time\", \"max_tokens\": 32}'\n\n",
        url.c_str(), model.c_str());
  }
  std::fflush(stdout);
}

}  // namespace levada::cli
