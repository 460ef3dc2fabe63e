#include "base/random.h"

#include <sys/random.h>

#include "base/check.h"
#include "base/hex.h"

namespace levada {

std::uint64_t random_word() {
  std::uint64_t word = 0;
  LEVADA_CHECK(::getrandom(&word, sizeof word, 0) == sizeof word, "the system gives no random numbers");
  return word;
}

std::string random_hex(int words) {
  std::string text;
  for (int i = 0; i < words; ++i) text += hex64(random_word());
  return text;
}

}  // namespace levada
