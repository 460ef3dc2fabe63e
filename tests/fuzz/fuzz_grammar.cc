// libFuzzer entry: a schema, regular expression or grammar from arbitrary bytes; the first byte says which. What compiles must
// drive a matcher along its own masks.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "grammar/compiler.h"
#include "grammar/matcher.h"

namespace {

using namespace levada;

constexpr int kSteps = 24;

// The first token the mask allows, -1 if none.
text::Token first_of(const std::vector<std::uint32_t>& mask) {
  for (std::size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] != 0) return static_cast<text::Token>(word * 32 + static_cast<unsigned>(__builtin_ctz(mask[word])));
  }
  return -1;
}

void follow(const std::shared_ptr<const grammar::Grammar>& compiled, std::size_t words) {
  grammar::Matcher matcher(compiled);
  for (int step = 0; step < kSteps && !matcher.is_finished(); ++step) {
    std::vector<std::uint32_t> mask(words, ~0u);
    if (!matcher.fill(mask)) mask.assign(words, ~0u);
    const text::Token token = first_of(mask);
    if (token < 0) return;  // a dead end of the source's own
    if (!matcher.accept(token).ok()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const auto tokenizer = text::Tokenizer::from_json("tests/vectors/tiny/llama/tokenizer.json").value();
  static grammar::Compiler compiler(*tokenizer, tokenizer->vocab_size(), {*tokenizer->eos()}, {.cpu_ms = 500});
  const auto kind = static_cast<grammar::Source::Kind>(data[0] % 4);
  const auto compiled = compiler.compile({kind, std::string(reinterpret_cast<const char*>(data) + 1, size - 1)});
  if (!compiled.ok()) return compiled.status().message().empty() ? std::abort(), 0 : 0;
  follow(*compiled, (static_cast<std::size_t>(tokenizer->vocab_size()) + 31) / 32);
  return 0;
}
