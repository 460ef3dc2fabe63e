#include "cli/banner.h"

#include "serve/json_text.h"

namespace levada::cli {
namespace {

constexpr const char* kKeyPlaceholder = "YOUR_API_KEY";

std::string url_of(const Ready& ready) {
  const std::string& host = ready.host;
  const bool any = host == "0.0.0.0" || host == "::";
  const bool v6 = host.find(':') != std::string::npos && !any;
  return "http://" + (any ? "127.0.0.1" : v6 ? "[" + host + "]" : host) + ":" + std::to_string(ready.port);
}

// A JSON string is a Python string too.
std::string in_double_quotes(const std::string& text) {
  std::string quoted;
  serve::append_json_string(quoted, text);
  return quoted;
}

// Text for inside a shell's single quotes.
std::string for_single_quotes(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

std::string curl_snippet(const Ready& ready, const std::string& path, const std::string& flags,
                         const std::string& body) {
  std::string text = "curl " + flags + url_of(ready) + path + " -H 'Content-Type: application/json'";
  if (ready.key_needed) text += " -H 'Authorization: Bearer " + std::string(kKeyPlaceholder) + "'";
  return text + " -d '{\n  \"model\": " + for_single_quotes(in_double_quotes(ready.model)) + ", " + body + "}'\n\n";
}

std::string python_snippet(const Ready& ready) {
  return "python3 - <<'PY'   # pip install openai\n"
         "from openai import OpenAI\n"
         "client = OpenAI(base_url=\"" +
         url_of(ready) + "/v1\", api_key=\"" + (ready.key_needed ? kKeyPlaceholder : "none") +
         "\")\n"
         "answer = client.chat.completions.create(\n"
         "    model=" +
         in_double_quotes(ready.model) +
         ", messages=[{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}])\n"
         "print(answer.choices[0].message.content)\n"
         "PY\n\n";
}

}  // namespace

std::string ready_text(const Ready& ready) {
  const std::string first = "\nlevada is ready: " + url_of(ready) + "   (chat page; Ctrl-C stops)\n\n";
  if (!ready.chat) {
    return first + curl_snippet(ready, "/v1/completions", "", "\"prompt\": \"Once upon a time\", \"max_tokens\": 32");
  }
  return first +
         curl_snippet(ready, "/v1/chat/completions", "-N ",
                      "\"stream\": true,\n"
                      "  \"messages\": [{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}]") +
         python_snippet(ready);
}

}  // namespace levada::cli
