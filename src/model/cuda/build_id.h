// What: build_id(), what tells this build of the module from every other.
// Owner: none.
// Thread: any.
// Invariant: the linker's build id, a hash over the whole module, in hex; empty if it was linked without one.
// No format of its own.
#pragma once

#include <string>

namespace levada::model {

std::string build_id();

}  // namespace levada::model
