// The other process of ucx_store_test.cc: a server or a client that can be killed or stopped in the middle of a transfer.
// It is a program of its own, because UCX doesn't outlive a fork.
//   ucx_peer serve BYTES         an arena with the object "k" of so many bytes; prints its URL, ends with its input
//   ucx_peer get URL BYTES       reads "k" again and again, "get\n" before and "ok\n" after each
//   ucx_peer put URL BYTES       puts and removes "p" again and again, the same
#include <cstdio>
#include <cstdlib>

#include "store/test_store.h"

namespace levada::store {
namespace {

void say(const char* line) {
  std::puts(line);
  std::fflush(stdout);
}

int serve(std::size_t bytes) {
  ServerOptions options;
  options.ucx_url = "ucx://127.0.0.1:0";
  ServedArena served(2 * bytes + (1 << 20), options);
  if (!served.arena->put_from("k", pattern(bytes)).ok()) return 1;
  say(served.server->ucx_url().c_str());
  while (std::getchar() != EOF) continue;
  return 0;
}

int work(const std::string& what, const std::string& url, std::size_t bytes) {
  SystemClock clock;
  const auto store = open_store(url, kToken, {.timeout_us = 2'000'000}, clock);
  std::vector<std::byte> value = pattern(bytes, 7);
  const auto once = [&]() -> Status {
    if (what == "get") return (*store)->get_into("k", value).status();
    LEVADA_RETURN_IF_ERROR((*store)->put_from("p", value));
    return (*store)->remove("p").status();
  };
  for (Status status = store.status(); status.ok(); status = once()) say(what.c_str());
  return 1;
}

}  // namespace
}  // namespace levada::store

int main(int argc, char** argv) {
  if (argc == 3) return levada::store::serve(std::strtoull(argv[2], nullptr, 10));
  return argc == 4 ? levada::store::work(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10)) : 2;
}
