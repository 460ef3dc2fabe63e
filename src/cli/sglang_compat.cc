#include "cli/sglang_compat.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/log.h"

namespace levada::cli {
namespace {

// Flags of SGLang with which the same weights give other numbers, and the values with which they don't.
struct NumberFlag {
  std::string_view name;
  std::string_view harmless;
};
constexpr NumberFlag kNumberFlags[] = {{"--quantization", ""},
                                       {"--quantization-param-path", ""},
                                       {"--torchao-config", ""},
                                       {"--kv-cache-dtype", "auto"},
                                       {"--json-model-override-args", "{}"},
                                       {"--rope-scaling", ""},
                                       {"--lora-paths", ""},
                                       {"--dp-size", "1"},
                                       {"--data-parallel-size", "1"},
                                       {"--enable-dp-attention", "false"},
                                       {"--ep-size", "1"},
                                       {"--expert-parallel-size", "1"}};

struct EnvironmentName {
  const char* name;
  std::string_view room, option;
};
constexpr EnvironmentName kEnvironment[] = {{"SPECFORGE_SPEC_CAPTURE", "capture", "enable_spec_capture"}};

}  // namespace

bool asks_for_sglang(Words words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--compat=sglang") return true;
    if (word == "--compat" && i + 1 < words.size() && std::string_view(words[i + 1]) == "sglang") return true;
  }
  return false;
}

Status pass_over(const std::vector<recipe::UnknownFlag>& flags) {
  for (const recipe::UnknownFlag& flag : flags) {
    const auto* found = std::find_if(std::begin(kNumberFlags), std::end(kNumberFlags),
                                     [&](const NumberFlag& one) { return one.name == flag.name; });
    if (found != std::end(kNumberFlags) && flag.value != found->harmless) {
      return invalid_argument(flag.name + " " + flag.value +
                              " would change the model's numbers, and is not served here");
    }
    LEVADA_LOG_WARNING(flag.name, flag.value.empty() ? "" : " ", flag.value, " has no effect here");
  }
  return {};
}

Status take_sglang_environment(const OptionTable& table) {
  for (const auto& [name, room, option] : kEnvironment) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    const bool is_on = std::string_view(value) == "1" || std::string_view(value) == "true";
    LEVADA_RETURN_IF_ERROR(table.set(room, option, is_on ? "true" : "false"));
  }
  return {};
}

}  // namespace levada::cli
