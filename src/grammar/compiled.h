// What: Grammar's inside, shared by compiler.cc and matcher.cc alone: it names the engine.
// Owner: as Grammar.
// Thread: immutable.
// Invariant: every stop id lies in the vocabulary.
#pragma once

#include <xgrammar/xgrammar.h>

#include <utility>
#include <vector>

#include "grammar/compiler.h"

namespace levada::grammar {

class Grammar {
 public:
  Grammar(xgrammar::CompiledGrammar the_compiled, std::vector<text::Token> the_stop_ids)
      : compiled(std::move(the_compiled)), stop_ids(std::move(the_stop_ids)) {}
  const xgrammar::CompiledGrammar compiled;
  const std::vector<text::Token> stop_ids;
};

}  // namespace levada::grammar
