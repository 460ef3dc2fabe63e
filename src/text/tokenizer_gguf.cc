// Reads a tokenizer from a GGUF's metadata (keys tokenizer.ggml.*, tokenizer.chat_template).
#include "files/gguf.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"

namespace levada::text {
namespace {

// tokenizer.ggml.token_type
enum TokenType : std::int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

Status read_pre_tokenizer(const files::GgufFile& gguf, TokenizerSpec& spec) {
  const auto model = gguf.string("tokenizer.ggml.model");
  if (!model) return data_loss("tokenizer.ggml.model is missing");
  if (*model != "gpt2") {
    return data_loss("tokenizer.ggml.model " + in_quotes(*model) + " is not supported; known: gpt2 (byte-level BPE)");
  }
  const std::string_view name = gguf.string("tokenizer.ggml.pre").value_or("default");
  const auto kind = pre_tokenizer_by_name(name);
  if (!kind) {
    return data_loss("tokenizer.ggml.pre " + in_quotes(name) + " is not supported; known: " + known_pre_tokenizers());
  }
  spec.pre_tokenizer = *kind;
  // The format has no field for these two properties of the model families.
  spec.nfc = *kind == PreTokenizer::kQwen2;
  spec.bpe.ignore_merges = *kind == PreTokenizer::kLlamaBpe;
  return {};
}

Status read_token(std::int64_t id, std::string_view text, std::int64_t type, VocabularyBuilder& vocabulary,
                  TokenizerSpec& spec) {
  switch (type) {
    case kNormal:
    case kByte: return vocabulary.add(id, text);
    case kUnknown:
    case kControl:
    case kUserDefined:
      LEVADA_RETURN_IF_ERROR(vocabulary.add_verbatim(id, text));
      spec.added.push_back({.id = static_cast<Token>(id), .text = std::string(text), .special = type != kUserDefined});
      return {};
    case kUnused: return {};
    default:
      return data_loss("tokenizer.ggml.token_type[" + std::to_string(id) + "] is " + std::to_string(type) +
                       ", known are 1 to 6");
  }
}

Status read_tokens(const files::GgufFile& gguf, VocabularyBuilder& vocabulary, TokenizerSpec& spec) {
  const auto* tokens = gguf.strings("tokenizer.ggml.tokens");
  if (tokens == nullptr || tokens->empty()) return data_loss("tokenizer.ggml.tokens is missing or empty");
  const auto types = gguf.integers("tokenizer.ggml.token_type");
  if (types && types->size() != tokens->size()) {
    return data_loss("tokenizer.ggml.token_type has " + std::to_string(types->size()) + " entries for " +
                     std::to_string(tokens->size()) + " tokens");
  }
  for (std::size_t id = 0; id < tokens->size(); ++id) {
    const std::string_view text = (*tokens)[id];
    if (find_invalid_utf8(text) != std::string_view::npos) {
      return data_loss("tokenizer.ggml.tokens[" + std::to_string(id) + "] is not valid UTF-8");
    }
    LEVADA_RETURN_IF_ERROR(
        read_token(static_cast<std::int64_t>(id), text, types ? (*types)[id] : kNormal, vocabulary, spec));
  }
  return {};
}

Status read_merges(const files::GgufFile& gguf, VocabularyBuilder& vocabulary) {
  const auto* merges = gguf.strings("tokenizer.ggml.merges");
  if (merges == nullptr) return data_loss("tokenizer.ggml.merges is missing");
  for (std::size_t i = 0; i < merges->size(); ++i) {
    const std::string_view line = (*merges)[i];
    const std::size_t space = line.find(' ', 1);  // a token never is empty
    if (line.empty() || space == std::string_view::npos) {
      return data_loss("tokenizer.ggml.merges[" + std::to_string(i) + "] must be \"left right\"");
    }
    LEVADA_RETURN_IF_ERROR(vocabulary.add_merge(line.substr(0, space), line.substr(space + 1)));
  }
  return {};
}

Status read_special(const files::GgufFile& gguf, std::string_view key, std::size_t vocabulary_size,
                    std::optional<Token>& token) {
  const auto id = gguf.integer(key);
  if (!id) return {};
  if (*id < 0 || *id >= static_cast<std::int64_t>(vocabulary_size)) {
    return data_loss(std::string(key) + " is " + std::to_string(*id) + ", the vocabulary has " +
                     std::to_string(vocabulary_size) + " tokens");
  }
  token = static_cast<Token>(*id);
  return {};
}

Result<TokenizerSpec> read_spec(const files::GgufFile& gguf) {
  TokenizerSpec spec;
  VocabularyBuilder vocabulary;
  LEVADA_RETURN_IF_ERROR(read_pre_tokenizer(gguf, spec));
  LEVADA_RETURN_IF_ERROR(read_tokens(gguf, vocabulary, spec));
  LEVADA_RETURN_IF_ERROR(read_merges(gguf, vocabulary));
  vocabulary.move_into(spec);
  const std::size_t size = gguf.strings("tokenizer.ggml.tokens")->size();
  spec.mergeable.resize(size);  // unused entries at the end count too
  spec.verbatim.resize(size);
  LEVADA_RETURN_IF_ERROR(read_special(gguf, "tokenizer.ggml.bos_token_id", size, spec.bos));
  LEVADA_RETURN_IF_ERROR(read_special(gguf, "tokenizer.ggml.eos_token_id", size, spec.eos));
  // Absent flags mean what the family does: Llama-3 starts a text with bos, the others don't.
  const bool bos_by_default = spec.pre_tokenizer == PreTokenizer::kLlamaBpe;
  if (spec.bos && gguf.boolean("tokenizer.ggml.add_bos_token").value_or(bos_by_default)) spec.prefix = {*spec.bos};
  if (spec.eos && gguf.boolean("tokenizer.ggml.add_eos_token").value_or(false)) spec.suffix = {*spec.eos};
  spec.chat_template = gguf.string("tokenizer.chat_template").value_or("");
  return spec;
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_gguf(const files::GgufFile& gguf, const std::string& file) {
  auto spec = read_spec(gguf);
  if (!spec.ok()) return Status(spec.status().code(), file + ": " + spec.status().message());
  return spec;
}

}  // namespace levada::text
