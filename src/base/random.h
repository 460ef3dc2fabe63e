// What: unpredictable numbers from the operating system, for ids, nonces and seeds nobody chose.
// Owner: none.
// Thread: any.
// Invariant: no two calls of any processes are related. Not for what a seeded simulation must repeat.
#pragma once

#include <cstdint>
#include <string>

namespace levada {

// Ends the process if the system gives no random numbers: nothing that needs a fresh name is safe then.
std::uint64_t random_word();
// `words` such numbers as text, 16 hexadecimal digits each.
std::string random_hex(int words);

}  // namespace levada
