#include "base/random.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "base/hex.h"

namespace levada {

std::uint64_t random_word() {
  // A request needs several words, and a call for each costs more than its JSON; so few come at once that no signal can cut
  // the call short. After a fork both processes would have the rest.
  thread_local std::array<std::uint64_t, 32> words;
  thread_local std::size_t used = words.size();
  thread_local pid_t filled_by = 0;
  if (used == words.size() || filled_by != ::getpid()) {
    LEVADA_CHECK(::getrandom(words.data(), sizeof words, 0) == sizeof words, "the system gives no random numbers");
    used = 0;
    filled_by = ::getpid();
  }
  return std::exchange(words[used++], 0);
}

std::string random_hex(int words) {
  std::string text;
  for (int i = 0; i < words; ++i) text += hex64(random_word());
  return text;
}

}  // namespace levada
