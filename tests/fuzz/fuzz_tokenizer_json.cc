// libFuzzer entry: a tokenizer.json from arbitrary bytes. One that loads must encode and keep its promise about bytes.
//
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using levada::text::Tokenizer;
  static const int file = ::memfd_create("tokenizer.json", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  const auto tokenizer = Tokenizer::from_json(path);
  if (!tokenizer.ok()) return tokenizer.status().message().empty() ? std::abort(), 0 : 0;
  for (const char* text : {"", "a", "the quick 12 \xC3\xA9 \xF0\x9F\x98\x80\n", "<s>ab</s>"}) {
    for (const auto token : (*tokenizer)->encode(text)) {
      if (token < 0 || token >= (*tokenizer)->vocab_size()) std::abort();
      static_cast<void>((*tokenizer)->bytes(token));
    }
  }
  return 0;
}
