// What: Bpe, byte-pair merging of one piece of text.
// Owner: the Tokenizer.
// Thread: encode() from any thread, each with its own Scratch.
// Invariant: among all adjacent pairs that have a merge, the one of lowest rank, leftmost first, is merged next. A byte
// without a token is dropped (its neighbours become adjacent) or becomes `unknown`, as Hugging Face's BPE does. Time:
// O(n log n) in the piece's bytes, also for a megabyte of one letter.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/flat_map.h"
#include "text/tokenizer.h"

namespace levada::text {

struct Merge {
  Token left, right, result;
};

class Bpe {
 public:
  struct Options {
    bool ignore_merges = false;    // a piece that is a token needs no merges (Llama-3)
    std::optional<Token> unknown;  // stands for bytes without a token
    bool fuse_unknown = false;     // neighbouring unknown bytes become one token
  };
  // `bytes_by_id` holds "" where an id can't be produced by merging; non-empty entries are distinct. Merges are in rank
  // order; of two for the same pair the later holds. `bytes_by_id` must outlive the Bpe.
  Bpe(const std::vector<std::string>& bytes_by_id, const std::vector<Merge>& merges, Options options);

  struct Scratch;
  // Appends the tokens of `piece`.
  void encode(std::string_view piece, std::vector<Token>& out, Scratch& scratch) const;
  // The mergeable token with exactly these bytes.
  std::optional<Token> find(std::string_view bytes) const;

  struct Symbol {
    Token token;
    std::int32_t previous, next;  // indices, -1 at the ends
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;              // index of the pair's left symbol
    Token left_token, right_token;  // what stood there when the candidate was made; another pair now: it is stale
    Token result;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

 private:
  void index_words(const std::vector<std::string>& bytes_by_id);
  void find_whole_words();
  void load_symbols(std::string_view piece, std::vector<Symbol>& symbols) const;
  void merge_short(std::vector<Symbol>& symbols) const;
  void merge_long(Scratch& scratch) const;
  // The merge of the symbol with its right neighbour, if there is one, behind the heap; false if there is none.
  bool append_candidate(Scratch& scratch, std::int32_t left) const;
  void push_candidate(Scratch& scratch, std::int32_t left) const;
  void merge_symbols(std::string_view piece, std::vector<Token>& out, Scratch& scratch) const;

  Options options_;
  const std::vector<std::string>* bytes_by_id_;
  std::array<Token, 256> byte_token_;
  FlatMap merges_;            // (left, right) -> (rank, result)
  std::vector<Token> words_;  // open addressing by hash of the bytes, -1 empty
  std::vector<bool> whole_;   // by id: merging its bytes gives this token alone
  std::size_t longest_ = 0;
};

}  // namespace levada::text
