// What: Compiler, from a JSON schema, a regular expression or an EBNF grammar to a Grammar over one tokenizer's vocabulary.
// Owner: whoever serves a model; one per model.
// Thread: any, several at once.
// Invariant: no source can crash or hang it: size, nesting, processor time, stack and memory of masks are bounded, and a
// bound that is hit is a kInvalidArgument that names it. The first use sorts the vocabulary (some 0.2 s for 49,152 ids). A schema's keyword that the engine would leave out is refused, not
// ignored. Equal sources give the same Grammar while it is kept; what is kept is bounded in bytes, the longest unused goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace levada::grammar {

// A compiled grammar: token masks and automata. Immutable.
class Grammar;

struct Source {
  enum class Kind : std::uint8_t {
    kJsonSchema,     // the schema; objects hold the properties it names only, unless it says otherwise; at most 32
                     // blanks in a row
    kRegex,          // matched by the whole answer
    kEbnf,           // GBNF-style; the rule is called root
    kStructuralTag,  // XGrammar's JSON for text with tagged parts
  };
  Kind kind = Kind::kJsonSchema;
  std::string text;
  bool operator==(const Source&) const = default;
};

class Compiler {
 public:
  struct Limits {
    std::size_t source_bytes = 128 << 10;
    std::int32_t nesting = 128;  // of brackets in a source
    std::int64_t cpu_ms = 2000;
    std::int64_t mask_bytes = 128 << 20;  // of one grammar
    std::size_t kept_bytes = 256 << 20;   // of all grammars that are kept, and as much for rules they share
  };

  // The tokenizer must outlive it. `vocab_size` is the model's, not below the tokenizer's. `stop_ids` may follow a complete answer; at least one.
  Compiler(const text::Tokenizer& tokenizer, std::int32_t vocab_size, std::vector<text::Token> stop_ids, Limits limits);
  ~Compiler();

  Result<std::shared_ptr<const Grammar>> compile(const Source& source);

  // For the server's page of state.
  struct Stats {
    std::size_t kept = 0, kept_bytes = 0;
    std::int64_t compiled = 0, reused = 0, refused = 0;
  };
  Stats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada::grammar
