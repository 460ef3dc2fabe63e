// What: TokenizerSpec, what a tokenizer file says, whatever its format: the seam between the two loaders and Tokenizer.
// Owner: built by a loader, consumed by the Tokenizer's constructor.
// Thread: its owner's.
// Invariant: every id is in [0, kMaxVocabulary); ids and texts of `added` are unique; merges name existing tokens. The
// loaders check; nothing later does. A vocabulary entry that isn't written in the byte alphabet keeps its raw text and
// is unreachable by merging.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "files/printed.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace levada::text {

inline constexpr std::int64_t kMaxVocabulary = 4 << 20;
inline constexpr std::size_t kMaxTokenBytes = 64 << 10;

struct AddedToken {
  Token id = 0;
  std::string text;
  bool special = false;
  bool lstrip = false, rstrip = false;  // swallow white space on that side
  bool single_word = false;             // only where no word character touches it
  bool normalized = false;              // looked for in the normalized text
};

struct TokenizerSpec {
  PreTokenizer pre_tokenizer = PreTokenizer::kGpt2;
  bool nfc = false;
  Bpe::Options bpe;
  std::vector<std::string> mergeable;  // bytes by id, "" where merging can't give that id
  std::vector<std::string> verbatim;   // bytes by id of entries outside the byte alphabet, "" elsewhere
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  std::vector<Token> prefix, suffix;  // of a text, when special tokens are asked for
  std::optional<Token> bos, eos;
  std::string chat_template;
};

// Collects a vocabulary; refuses what would make a Tokenizer inconsistent.
class VocabularyBuilder {
 public:
  // One entry as the file writes it: in the byte alphabet when every character is of it, verbatim otherwise.
  Status add(std::int64_t id, std::string_view symbols);
  // An entry whose text stands for itself and that merging can't reach (a GGUF's control token).
  Status add_verbatim(std::int64_t id, std::string_view text);
  // left and right in the file's alphabet. Their concatenation must be an entry too.
  Status add_merge(std::string_view left, std::string_view right);
  std::optional<Token> find(std::string_view symbols) const;
  bool has(Token id) const {
    return static_cast<std::size_t>(id) < taken_.size() && taken_[static_cast<std::size_t>(id)];
  }
  void move_into(TokenizerSpec& spec);

 private:
  Status claim(std::int64_t id, std::string_view symbols);
  std::vector<std::string> mergeable_, verbatim_;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, Token, Hash, std::equal_to<>> ids_;  // by text as the file writes it
  std::vector<bool> taken_;
  std::vector<Merge> merges_;
};

using files::in_quotes;  // of what a file says, for messages

Result<TokenizerSpec> read_tokenizer_json(const std::filesystem::path& file);
// `file` stands for the container in messages.
Result<TokenizerSpec> read_tokenizer_gguf(const files::GgufFile& gguf, const std::string& file);
// Adds what tokenizer_config.json and chat_template.jinja in `folder` say, as far as they are there.
Status read_tokenizer_config(const std::filesystem::path& folder, TokenizerSpec& spec);

// The whole of a regular file of at most `limit` bytes.
Result<std::string> read_small_file(const std::filesystem::path& file, std::uint64_t limit);

}  // namespace levada::text
