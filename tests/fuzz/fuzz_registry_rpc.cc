// libFuzzer entry: a body of the registry's RPC, for the operation that the first byte names, parsed, applied to a machine
// and written again; then the rest as a ref.
// clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address -Isrc tests/fuzz/fuzz_registry_rpc.cc src/registry/message_json.cc
//   src/registry/ref_json.cc src/fanout/*.cc src/core/sample_ref.cc src/base/{status,hash}.cc -lsimdjson -lxxhash
//   -o fuzz_registry_rpc && ./fuzz_registry_rpc -max_len=4096
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto& operations = registry::operations();
  const std::string_view operation = operations[data[0] % operations.size()].name;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  static const auto config = small_run();
  if (auto request = registry::parse_request(operation, body); request.ok()) {
    auto machine = fanout::Machine::open(config, {}, 1);
    if (!machine.ok()) std::abort();
    const auto outcome = machine->apply(*request, 2);
    if (outcome.ok()) (void)registry::reply_json(*outcome, {"run"});
    if (!fanout::audit(machine->state(), 2).empty()) std::abort();
    const auto again = registry::parse_request(operation, registry::request_json(*request, {"run"}));
    if (!again.ok()) std::abort();
  }
  if (const auto ref = registry::parse_ref(body); ref.ok()) {
    const auto again = registry::parse_ref(registry::ref_json(*ref, {"run"}));
    if (!again.ok() || !(*again == *ref)) std::abort();
  }
  return 0;
}
