#include "text/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_spec.h"

namespace levada::text {
namespace {

std::vector<AddedToken> added_where(const std::vector<AddedToken>& all, bool normalized, bool nfc_on) {
  std::vector<AddedToken> chosen;
  for (AddedToken token : all) {
    if (token.normalized != normalized) continue;
    if (normalized && nfc_on) {
      if (auto text = nfc(token.text)) token.text = std::move(*text);
    }
    chosen.push_back(std::move(token));
  }
  return chosen;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerSpec read)
      : spec(std::move(read)),
        bpe(spec.mergeable, spec.merges, spec.bpe),
        raw_added(added_where(spec.added, false, spec.nfc)),
        normalized_added(added_where(spec.added, true, spec.nfc)) {
    spec.merges = {};
    index_ids();
  }

  void index_ids();
  // The steps of encode(): each cuts out what it knows and hands the text between on to the next.
  void encode_raw(std::string_view text, bool skip_special, std::vector<Token>& out, Bpe::Scratch& scratch) const;
  void encode_normalized(std::string_view text, bool skip_special, std::vector<Token>& out,
                         Bpe::Scratch& scratch) const;
  void encode_plain(std::string_view text, std::vector<Token>& out, Bpe::Scratch& scratch) const;

  TokenizerSpec spec;
  Bpe bpe;
  AddedTokenMatcher raw_added, normalized_added;
  std::vector<std::string_view> bytes_by_id;
  std::vector<bool> special_by_id;
  std::unordered_map<std::string_view, Token> added_by_text, verbatim_by_text;
};

void Tokenizer::Impl::index_ids() {
  std::size_t size = spec.mergeable.size();
  for (const AddedToken& token : spec.added) size = std::max(size, static_cast<std::size_t>(token.id) + 1);
  bytes_by_id.resize(size);
  special_by_id.resize(size, false);
  for (std::size_t id = 0; id < spec.mergeable.size(); ++id) {
    bytes_by_id[id] = spec.mergeable[id].empty() ? spec.verbatim[id] : spec.mergeable[id];
    if (!spec.verbatim[id].empty()) verbatim_by_text.emplace(spec.verbatim[id], static_cast<Token>(id));
  }
  for (const AddedToken& token : spec.added) {
    const auto id = static_cast<std::size_t>(token.id);
    bytes_by_id[id] = token.text;
    special_by_id[id] = token.special;
    added_by_text.emplace(token.text, token.id);
  }
}

void Tokenizer::Impl::encode_raw(std::string_view text, bool skip_special, std::vector<Token>& out,
                                 Bpe::Scratch& scratch) const {
  std::size_t at = 0;
  for (AddedTokenMatcher::Match match; raw_added.next(text, at, skip_special, match); at = match.end) {
    encode_normalized(text.substr(at, match.begin - at), skip_special, out, scratch);
    out.push_back(match.id);
  }
  encode_normalized(text.substr(at), skip_special, out, scratch);
}

void Tokenizer::Impl::encode_normalized(std::string_view text, bool skip_special, std::vector<Token>& out,
                                        Bpe::Scratch& scratch) const {
  std::optional<std::string> changed;
  if (spec.nfc) changed = nfc(text);
  if (changed) text = *changed;
  if (normalized_added.empty()) return encode_plain(text, out, scratch);
  std::size_t at = 0;
  for (AddedTokenMatcher::Match match; normalized_added.next(text, at, skip_special, match); at = match.end) {
    encode_plain(text.substr(at, match.begin - at), out, scratch);
    out.push_back(match.id);
  }
  encode_plain(text.substr(at), out, scratch);
}

void Tokenizer::Impl::encode_plain(std::string_view text, std::vector<Token>& out, Bpe::Scratch& scratch) const {
  PieceSplitter splitter(spec.pre_tokenizer, text);
  for (std::string_view piece; splitter.next(piece);) bpe.encode(piece, out, scratch);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(const std::filesystem::path& tokenizer_json) {
  LEVADA_ASSIGN_OR_RETURN(TokenizerSpec spec, read_tokenizer_json(tokenizer_json));
  LEVADA_RETURN_IF_ERROR(read_tokenizer_config(tokenizer_json.parent_path(), spec));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::make_unique<Impl>(std::move(spec))));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const files::GgufFile& gguf, const std::string& file) {
  LEVADA_ASSIGN_OR_RETURN(TokenizerSpec spec, read_tokenizer_gguf(gguf, file));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::make_unique<Impl>(std::move(spec))));
}

std::vector<Token> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<Token> out;
  out.reserve(text.size() / 4 + 8);
  Bpe::Scratch scratch;
  const auto& spec = impl_->spec;
  if (options.add_special_tokens) out = spec.prefix;
  impl_->encode_raw(text, !options.parse_special_tokens, out, scratch);
  if (options.add_special_tokens) out.insert(out.end(), spec.suffix.begin(), spec.suffix.end());
  return out;
}

std::string_view Tokenizer::bytes(Token token) const {
  const auto& all = impl_->bytes_by_id;
  return token >= 0 && static_cast<std::size_t>(token) < all.size() ? all[static_cast<std::size_t>(token)]
                                                                    : std::string_view();
}

bool Tokenizer::is_special(Token token) const {
  const auto& all = impl_->special_by_id;
  return token >= 0 && static_cast<std::size_t>(token) < all.size() && all[static_cast<std::size_t>(token)];
}

std::optional<Token> Tokenizer::token_id(std::string_view text) const {
  for (const auto* table : {&impl_->added_by_text, &impl_->verbatim_by_text}) {
    if (const auto found = table->find(text); found != table->end()) return found->second;
  }
  return impl_->bpe.find(text);
}

std::int32_t Tokenizer::vocab_size() const { return static_cast<std::int32_t>(impl_->bytes_by_id.size()); }
std::optional<Token> Tokenizer::bos() const { return impl_->spec.bos; }
std::optional<Token> Tokenizer::eos() const { return impl_->spec.eos; }
const std::string& Tokenizer::chat_template() const { return impl_->spec.chat_template; }

}  // namespace levada::text
