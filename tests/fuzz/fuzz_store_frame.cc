// libFuzzer entry: the head of a store frame from arbitrary bytes, and a shared index made of them. The check value of
// the head is put right first, or nothing behind it would ever be reached.
// clang++ -std=c++20 -g1 -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -mavx2 -Isrc
//   tests/fuzz/fuzz_store_frame.cc src/store/{frame,shared_index}.cc src/base/{status,hash,hash_avx2}.cc
//   -o fuzz_store_frame && ./fuzz_store_frame -max_len=4096
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/hash.h"
#include "store/frame.h"
#include "store/shared_index.h"

namespace {

using namespace levada;

void fuzz_frame(std::span<const std::byte> bytes) {
  std::array<std::byte, store::kFrameBytes> head{};
  std::memcpy(head.data(), bytes.data(), std::min(bytes.size(), head.size()));
  (void)store::decode(head);
  const std::uint64_t check = hash64(std::span(head).first(store::kFrameBytes - 8));
  std::memcpy(head.data() + store::kFrameBytes - 8, &check, sizeof check);
  const Result<store::Frame> frame = store::decode(head);
  if (frame.ok() && store::encode(*frame) != head) std::abort();
}

void fuzz_index(std::span<const std::byte> bytes) {
  // The layout must be the writer's own, so that chains and entries are what is fuzzed.
  const store::IndexLayout layout = store::IndexLayout::of(2, 4096);
  alignas(4096) static std::byte memory[64 * 1024];
  std::memset(memory, 0, sizeof memory);
  store::IndexWriter writer(std::span<std::byte>(memory).first(layout.total_bytes), layout, 1);
  const std::size_t rest = layout.data_offset - layout.buckets_offset;
  std::memcpy(memory + layout.buckets_offset, bytes.data(), std::min(bytes.size(), rest));
  const auto reader = store::IndexReader::open(std::span<const std::byte>(memory).first(layout.total_bytes));
  if (!reader.ok()) std::abort();
  for (std::string_view key : {std::string_view("k"), std::string_view(reinterpret_cast<const char*>(bytes.data()),
                                                                       std::min<std::size_t>(bytes.size(), 8))}) {
    store::IndexReader::Found found;
    if (reader->find(key, found) != store::IndexReader::Answer::kFound) continue;
    if (found.offset > reader->data().size() || found.bytes > reader->data().size() - found.offset) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz_frame(bytes);
  fuzz_index(bytes);
  return 0;
}
