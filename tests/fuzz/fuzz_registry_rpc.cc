// libFuzzer entry: a conversation with the registry. Each line is a body of its RPC, for the operation that its first byte
// names: parsed, applied to one machine a tenth of a second after the line before, written again; and parsed as a ref.
// clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address -Isrc tests/fuzz/fuzz_registry_rpc.cc src/registry/message_json.cc
//   src/registry/ref_json.cc src/fanout/*.cc src/core/sample_ref.cc src/base/{status,hash}.cc -lsimdjson -lxxhash
//   -o fuzz_registry_rpc && ./fuzz_registry_rpc -max_len=8192 tests/fuzz/seeds/
// (leave out src/fanout/*_test.cc)
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "fanout/audit.h"
#include "fanout/machine.h"
#include "registry/message_json.h"

namespace {

using namespace levada;

std::shared_ptr<const fanout::RunConfig> small_run() {
  auto config = std::make_shared<fanout::RunConfig>();
  config->run_id = "run";
  config->store_id = "store";
  config->sources = {{"run:a", 1}, {"run:b", 2}, {"run:c", 3}};
  config->consumers = {{"a", 1, 0, 2, 1, 1}};
  config->max_live_refs = 2;
  config->max_live_bytes = 100;
  config->bytes_per_token = 8;
  config->feature_names = {"hidden_states"};
  return config;
}

void apply(fanout::Machine& machine, std::string_view operation, std::string_view body, std::int64_t now_us) {
  const auto request = registry::parse_request(operation, body);
  if (!request.ok()) return;
  const auto outcome = machine.apply(*request, now_us);
  if (outcome.ok()) {
    if (!registry::parse_reply(*request, registry::reply_json(*outcome, {"run"})).ok()) std::abort();
  } else if (registry::parse_error(500, registry::error_json(outcome.error())).code != outcome.error().code) {
    std::abort();
  }
  if (!fanout::audit(machine.state(), now_us).empty()) std::abort();
  if (!registry::parse_request(operation, registry::request_json(*request, {"run"})).ok()) std::abort();
}

void parse_as_ref(std::string_view body) {
  const auto ref = registry::parse_ref(body);
  if (!ref.ok()) return;
  const auto again = registry::parse_ref(registry::ref_json(*ref, {"run"}));
  if (!again.ok() || !(*again == *ref)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto config = small_run();
  const auto& operations = registry::operations();
  auto machine = fanout::Machine::open(config, {}, 1);
  if (!machine.ok()) std::abort();
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (std::int64_t now_us = 2; !rest.empty(); now_us += 100'000) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) continue;
    machine->on_time(now_us);
    apply(*machine, operations[static_cast<unsigned char>(line[0]) % operations.size()].name, line.substr(1), now_us);
    parse_as_ref(line.substr(1));
  }
  return 0;
}
