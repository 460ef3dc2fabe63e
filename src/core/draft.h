// What: DraftProfile, what the scheduler needs to know of a draft model: its name in plans and how many tokens it drafts.
// Owner: a value.
// Thread: any.
// Invariant: a version names one set of weights; another one is another draft, whatever its file was called.
#pragma once

#include <string>

#include "core/ids.h"

namespace levada::core {

struct DraftProfile {
  DraftVersion version = kNoDraft;
  std::string name;             // for people: where it came from
  std::int32_t block_size = 0;  // tokens of a block, the one it continues included; proposes at most block_size - 1
  std::string algorithm = "DFLASH";  // as --speculative-algorithm spells it
};

}  // namespace levada::core
