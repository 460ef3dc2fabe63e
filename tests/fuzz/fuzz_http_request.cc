// libFuzzer entry: one HTTP request from arbitrary bytes, cut into pieces whose length the first byte names.
// clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address -Isrc tests/fuzz/fuzz_http_request.cc src/http/request_reader.cc
//   src/http/text.cc src/base/status.cc -o fuzz_http_request && ./fuzz_http_request -max_len=4096
#include <cstdint>
#include <string>
#include <string_view>

#include "http/request_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using levada::http::RequestReader;
  if (size == 0) return 0;
  const std::size_t piece = std::size_t{data[0]} + 1;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  RequestReader reader(1024, 1024);
  std::string held;
  while (!rest.empty()) {
    held += rest.substr(0, piece);
    rest.remove_prefix(rest.size() < piece ? rest.size() : piece);
    RequestReader::State state;
    do {
      std::size_t consumed = 0;
      state = reader.read(held, consumed);
      held.erase(0, consumed);
    } while (state == RequestReader::State::kHeaderDone);
    if (state != RequestReader::State::kNeedMore) break;
  }
  return 0;
}
