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

Status take_speculative_flags(std::vector<recipe::UnknownFlag>& flags, const OptionTable& table) {
  constexpr std::string_view kRoom = "sched", kTokens = "speculative_num_draft_tokens";
  const bool chains = table.find(kRoom, "speculative_algorithm")->value() == "EAGLE3";
  std::vector<recipe::UnknownFlag> rest;
  for (recipe::UnknownFlag& flag : flags) {
    const bool block = flag.name == "--speculative-dflash-block-size";
    if (!block && flag.name != "--speculative-num-steps" && flag.name != "--speculative-eagle-topk") {
      rest.push_back(std::move(flag));
      continue;
    }
    const bool number = !flag.value.empty() && flag.value.find_first_not_of("0123456789") == std::string::npos;
    if (!number) return invalid_argument(flag.name + " must be a whole number, got '" + flag.value + "'");
    if (chains && flag.name == "--speculative-num-steps") {
      if (flag.value.size() > 4) return invalid_argument(flag.name + " " + flag.value + " is too many");
      LEVADA_RETURN_IF_ERROR(table.set(kRoom, kTokens, std::to_string(std::stoi(flag.value) + 1)));
      continue;
    }
    if (!block) {
      if (flag.value == "1") continue;
      if (chains) {
        LEVADA_LOG_WARNING(flag.name, " is 1 here: an EAGLE-3 draft proposes a chain");
        continue;
      }
      LEVADA_LOG_WARNING(flag.name, " is 1 here: a draft proposes its whole block in one step");
      continue;
    }
    const std::string given = table.find(kRoom, kTokens)->value();
    if (given != "0" && given != flag.value) {
      return invalid_argument(flag.name + " " + flag.value + " and --speculative-num-draft-tokens " + given +
                              " mean the same and must agree");
    }
    LEVADA_RETURN_IF_ERROR(table.set(kRoom, kTokens, flag.value));
  }
  flags = std::move(rest);
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
