// What: `levada serve --compat sglang`: a command line written for SGLang starts this server.
// Owner: serve_command.
// Thread: start-up only.
// Invariant: only here are flags passed over and upstream's environment names read; what would change the model's numbers is
// refused, never passed over.
// The names we have ourselves (--model-path, --chunked-prefill-size …) mean the same with and without it.
#pragma once

#include <vector>

#include "cli/command.h"
#include "recipe/command_line.h"

namespace levada::cli {

// Whether these words say `--compat sglang`.
bool asks_for_sglang(Words words);

// Takes SGLang's flags of speculation that we spell otherwise out of `flags`: --speculative-dflash-block-size is
// speculative_num_draft_tokens, and must agree with it where both are given; a DFlash draft proposes its block in one step of one
// branch, so other values of --speculative-num-steps and --speculative-eagle-topk are warned of, as SGLang forces them. With
// EAGLE3 the steps are those of a chain, steps + 1 tokens, whatever the number of tokens said (SGLang's rule for one branch);
// more than one branch is warned of.
Status take_speculative_flags(std::vector<recipe::UnknownFlag>& flags, const OptionTable& table);

// Warns of each flag that has no effect here. kInvalidArgument for one with which SGLang would compute other numbers.
Status pass_over(const std::vector<recipe::UnknownFlag>& flags);

// Sets the options that SGLang's plugins take from the environment. Before the command line, which wins.
Status take_sglang_environment(const OptionTable& table);

}  // namespace levada::cli
