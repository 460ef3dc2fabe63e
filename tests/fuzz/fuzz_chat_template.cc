// libFuzzer entry: a chat template from arbitrary bytes, rendered over two messages. It ends within its bounds or says which
// one it hit.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = levada::text::ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!parsed.ok()) return parsed.status().message().empty() ? std::abort(), 0 : 0;
  const auto text = (*parsed)->render(
      R"({"bos_token":"<s>","eos_token":"</s>","add_generation_prompt":true,"tools":[{"type":"function","function":{)"
      R"("name":"f","parameters":{"type":"object"}}}],"messages":[{"role":"system","content":"Be brief."},)"
      R"({"role":"user","content":"Hi"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f",)"
      R"("arguments":"{}"}}]}]})");
  if (!text.ok() && text.status().message().empty()) std::abort();
  return 0;
}
