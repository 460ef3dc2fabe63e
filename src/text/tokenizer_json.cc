// Reads Hugging Face's tokenizer.json. What we can't reproduce exactly is refused by name.
#include <algorithm>
#include <string>
#include <unordered_set>

#include "text/json_fields.h"
#include "text/nfc.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"

namespace levada::text {
namespace {

using simdjson::dom::array;
using simdjson::dom::object;

constexpr std::uint64_t kMaxFileBytes = 256u << 20;
constexpr std::size_t kMaxAddedTokenBytes = 1024;
constexpr std::size_t kMaxAddedBytes = 4 << 20;

Status unsupported(std::string_view field, std::string_view value, std::string_view known) {
  return data_loss(std::string(field) + " " + in_quotes(value) + " is not supported; known: " + std::string(known));
}

Result<std::string_view> type_of(JsonElement element, std::string_view field) {
  std::string_view type;
  if (!element.is_object() || element.at_key("type").get(type) != simdjson::SUCCESS) {
    return wrong_type(field, "an object with a string \"type\"");
  }
  return type;
}

// The steps of a Sequence, or the one step that stands alone. Nested sequences are refused by the callers as unknown.
Result<std::vector<JsonElement>> steps_of(JsonElement root, std::string_view field, std::string_view list) {
  std::vector<JsonElement> steps;
  const auto found = member(root, field);
  if (!found) return steps;
  LEVADA_ASSIGN_OR_RETURN(const std::string_view type, type_of(*found, field));
  if (type != "Sequence") {
    steps.push_back(*found);
    return steps;
  }
  LEVADA_ASSIGN_OR_RETURN(const array children, required<array>(*found, list, "a list"));
  for (const JsonElement child : children) steps.push_back(child);
  return steps;
}

Status read_normalizer(JsonElement root, TokenizerSpec& spec) {
  LEVADA_ASSIGN_OR_RETURN(const auto steps, steps_of(root, "normalizer", "normalizers"));
  for (const JsonElement step : steps) {
    LEVADA_ASSIGN_OR_RETURN(const std::string_view type, type_of(step, "normalizer"));
    if (type != "NFC") return unsupported("normalizer", type, "NFC");
    spec.nfc = true;
  }
  return {};
}

// A Split that keeps every match as a piece: Isolated, or its older spelling Removed + invert (these regexes match
// everything, so both give the same pieces).
Result<PreTokenizer> split_kind(JsonElement split) {
  const auto pattern = member(split, "pattern");
  if (!pattern || !pattern->is_object()) return wrong_type("pre_tokenizer.pattern", "an object");
  LEVADA_ASSIGN_OR_RETURN(const auto regex, required<std::string_view>(*pattern, "Regex", "a string"));
  LEVADA_ASSIGN_OR_RETURN(const auto behavior, required<std::string_view>(split, "behavior", "a string"));
  LEVADA_ASSIGN_OR_RETURN(const bool invert, optional_or<bool>(split, "invert", "a boolean", false));
  if (!((behavior == "Isolated" && !invert) || (behavior == "Removed" && invert))) {
    return unsupported("pre_tokenizer Split behavior", behavior, "Isolated");
  }
  const auto kind = pre_tokenizer_by_regex(regex);
  if (!kind) return unsupported("pre_tokenizer Split regex", regex, "those of " + known_pre_tokenizers());
  return *kind;
}

struct ByteLevelStep {
  bool use_regex;
};

Result<ByteLevelStep> byte_level(JsonElement step) {
  LEVADA_ASSIGN_OR_RETURN(const bool prefix, optional_or<bool>(step, "add_prefix_space", "a boolean", true));
  if (prefix) return unsupported("pre_tokenizer ByteLevel add_prefix_space", "true", "false");
  LEVADA_ASSIGN_OR_RETURN(const bool regex, optional_or<bool>(step, "use_regex", "a boolean", true));
  return ByteLevelStep{regex};
}

Status read_pre_tokenizer(JsonElement root, TokenizerSpec& spec) {
  LEVADA_ASSIGN_OR_RETURN(const auto steps, steps_of(root, "pre_tokenizer", "pretokenizers"));
  std::string shape;
  for (const JsonElement step : steps) {
    LEVADA_ASSIGN_OR_RETURN(const std::string_view type, type_of(step, "pre_tokenizer"));
    shape += (shape.empty() ? "" : "+") + std::string(type);
  }
  const bool known = shape == "ByteLevel" || shape == "Digits+ByteLevel" || shape == "Split+ByteLevel";
  if (!known) return unsupported("pre_tokenizer", shape, "ByteLevel, Digits+ByteLevel, Split+ByteLevel");
  LEVADA_ASSIGN_OR_RETURN(const ByteLevelStep last, byte_level(steps.back()));
  if (last.use_regex == (shape == "Split+ByteLevel")) {
    return unsupported("pre_tokenizer " + shape + " with use_regex", last.use_regex ? "true" : "false", "the opposite");
  }
  if (shape == "ByteLevel") {
    spec.pre_tokenizer = PreTokenizer::kGpt2;
  } else if (shape == "Digits+ByteLevel") {
    LEVADA_ASSIGN_OR_RETURN(const bool single, optional_or<bool>(steps[0], "individual_digits", "a boolean", false));
    if (!single) return unsupported("pre_tokenizer Digits individual_digits", "false", "true");
    spec.pre_tokenizer = PreTokenizer::kSmollm;
  } else {
    LEVADA_ASSIGN_OR_RETURN(spec.pre_tokenizer, split_kind(steps[0]));
  }
  return {};
}

Status read_decoder(JsonElement root) {
  LEVADA_ASSIGN_OR_RETURN(const auto steps, steps_of(root, "decoder", "decoders"));
  for (const JsonElement step : steps) {
    LEVADA_ASSIGN_OR_RETURN(const std::string_view type, type_of(step, "decoder"));
    if (type != "ByteLevel") return unsupported("decoder", type, "ByteLevel");
  }
  return {};
}

Status read_vocabulary(JsonElement model, VocabularyBuilder& vocabulary) {
  LEVADA_ASSIGN_OR_RETURN(const object entries, required<object>(model, "vocab", "an object of token: id"));
  for (const auto entry : entries) {
    std::int64_t id = 0;
    if (entry.value.get(id) != simdjson::SUCCESS) {
      return data_loss("model.vocab: the id of " + in_quotes(entry.key) + " is not an integer");
    }
    LEVADA_RETURN_IF_ERROR(vocabulary.add(id, entry.key));
  }
  return {};
}

// A merge is "left right" in older files and ["left", "right"] in newer ones.
Status read_merge(JsonElement merge, std::size_t index, VocabularyBuilder& vocabulary) {
  const auto malformed = [&] {
    return data_loss("model.merges[" + std::to_string(index) + "] must be \"left right\" or [\"left\", \"right\"]");
  };
  std::string_view left, right;
  if (std::string_view line; merge.get(line) == simdjson::SUCCESS) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) return malformed();
    left = line.substr(0, space);
    right = line.substr(space + 1);
  } else {
    array pair;
    if (merge.get(pair) != simdjson::SUCCESS || pair.size() != 2 || pair.at(0).get(left) != simdjson::SUCCESS ||
        pair.at(1).get(right) != simdjson::SUCCESS) {
      return malformed();
    }
  }
  return vocabulary.add_merge(left, right);
}

Status read_bpe_options(JsonElement model, const VocabularyBuilder& vocabulary, Bpe::Options& options) {
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    LEVADA_ASSIGN_OR_RETURN(const auto affix, optional_or<std::string_view>(model, name, "a string", ""));
    if (!affix.empty()) return unsupported("model." + std::string(name), affix, "none");
  }
  if (const auto dropout = member(model, "dropout")) {
    double rate = 1;
    if (dropout->get(rate) != simdjson::SUCCESS || rate != 0) return unsupported("model.dropout", "above 0", "0");
  }
  LEVADA_ASSIGN_OR_RETURN(const bool fallback, optional_or<bool>(model, "byte_fallback", "a boolean", false));
  if (fallback) return unsupported("model.byte_fallback", "true", "false");
  LEVADA_ASSIGN_OR_RETURN(options.ignore_merges, optional_or<bool>(model, "ignore_merges", "a boolean", false));
  LEVADA_ASSIGN_OR_RETURN(options.fuse_unknown, optional_or<bool>(model, "fuse_unk", "a boolean", false));
  LEVADA_ASSIGN_OR_RETURN(const auto unknown, optional_or<std::string_view>(model, "unk_token", "a string", ""));
  if (!unknown.empty()) options.unknown = vocabulary.find(unknown);
  if (!unknown.empty() && !options.unknown) {
    return data_loss("model.unk_token " + in_quotes(unknown) + " is not in the vocabulary");
  }
  return {};
}

Status read_model(JsonElement root, VocabularyBuilder& vocabulary, TokenizerSpec& spec) {
  const auto model = member(root, "model");
  if (!model || !model->is_object()) return wrong_type("model", "an object");
  LEVADA_ASSIGN_OR_RETURN(const auto type, optional_or<std::string_view>(*model, "type", "a string", "BPE"));
  if (type != "BPE") return unsupported("model.type", type, "BPE");
  LEVADA_RETURN_IF_ERROR(read_vocabulary(*model, vocabulary));
  LEVADA_RETURN_IF_ERROR(read_bpe_options(*model, vocabulary, spec.bpe));
  LEVADA_ASSIGN_OR_RETURN(const array merges, required<array>(*model, "merges", "a list"));
  std::size_t index = 0;
  for (const JsonElement merge : merges) LEVADA_RETURN_IF_ERROR(read_merge(merge, index++, vocabulary));
  return {};
}

Result<AddedToken> read_added_token(JsonElement entry, const VocabularyBuilder& vocabulary) {
  if (!entry.is_object()) return wrong_type("added_tokens", "a list of objects");
  AddedToken token;
  LEVADA_ASSIGN_OR_RETURN(const auto id, required<std::int64_t>(entry, "id", "an integer (added_tokens)"));
  LEVADA_ASSIGN_OR_RETURN(token.text, required<std::string_view>(entry, "content", "a string (added_tokens)"));
  if (id < 0 || id >= kMaxVocabulary) {
    return data_loss("added_tokens: " + in_quotes(token.text) + " has id " + std::to_string(id) +
                     ", allowed are 0 to " + std::to_string(kMaxVocabulary - 1));
  }
  token.id = static_cast<Token>(id);
  if (token.text.empty() || token.text.size() > kMaxAddedTokenBytes) {
    return data_loss("added_tokens: the content of id " + std::to_string(id) + " must have 1 to " +
                     std::to_string(kMaxAddedTokenBytes) + " bytes");
  }
  LEVADA_ASSIGN_OR_RETURN(token.special, optional_or<bool>(entry, "special", "a boolean", false));
  LEVADA_ASSIGN_OR_RETURN(token.lstrip, optional_or<bool>(entry, "lstrip", "a boolean", false));
  LEVADA_ASSIGN_OR_RETURN(token.rstrip, optional_or<bool>(entry, "rstrip", "a boolean", false));
  LEVADA_ASSIGN_OR_RETURN(token.single_word, optional_or<bool>(entry, "single_word", "a boolean", false));
  LEVADA_ASSIGN_OR_RETURN(token.normalized, optional_or<bool>(entry, "normalized", "a boolean", !token.special));
  const auto known = vocabulary.find(token.text);
  if (known && *known != token.id) {
    return data_loss("added_tokens: " + in_quotes(token.text) + " has id " + std::to_string(id) +
                     " but the vocabulary says " + std::to_string(*known));
  }
  if (!known && vocabulary.has(token.id)) {
    return data_loss("added_tokens: id " + std::to_string(id) + " of " + in_quotes(token.text) +
                     " belongs to another token of the vocabulary");
  }
  return token;
}

Status read_added_tokens(JsonElement root, const VocabularyBuilder& vocabulary, TokenizerSpec& spec) {
  if (!member(root, "added_tokens")) return {};
  LEVADA_ASSIGN_OR_RETURN(const array entries, required<array>(root, "added_tokens", "a list"));
  std::unordered_set<Token> ids;
  std::unordered_set<std::string> texts;
  std::size_t bytes = 0;
  for (const JsonElement entry : entries) {
    LEVADA_ASSIGN_OR_RETURN(AddedToken token, read_added_token(entry, vocabulary));
    if (!ids.insert(token.id).second || !texts.insert(token.text).second) {
      return data_loss("added_tokens: id " + std::to_string(token.id) + " or its text " + in_quotes(token.text) +
                       " stands there twice");
    }
    bytes += token.text.size();
    if (bytes > kMaxAddedBytes) {
      return data_loss("added_tokens: all contents together exceed " + std::to_string(kMaxAddedBytes) + " bytes");
    }
    spec.added.push_back(std::move(token));
  }
  return {};
}

// TemplateProcessing's "single": ids before and after the one sequence A.
Status read_template(JsonElement processor, std::int64_t vocabulary_size, TokenizerSpec& spec) {
  LEVADA_ASSIGN_OR_RETURN(const array single, required<array>(processor, "single", "a list (post_processor)"));
  const auto specials = member(processor, "special_tokens");
  bool after = false;
  for (const JsonElement piece : single) {
    if (piece.is_object() && member(piece, "Sequence")) {
      if (after) return data_loss("post_processor.single repeats its sequence, which is not supported");
      after = true;
      continue;
    }
    const auto special = piece.is_object() ? member(piece, "SpecialToken") : std::nullopt;
    if (!special || !special->is_object() || !specials || !specials->is_object()) {
      return wrong_type("post_processor.single", "a list of Sequence and SpecialToken");
    }
    LEVADA_ASSIGN_OR_RETURN(const auto name, required<std::string_view>(*special, "id", "a string (post_processor)"));
    const auto entry = member(*specials, name);
    if (!entry || !entry->is_object()) return data_loss("post_processor.special_tokens lacks " + in_quotes(name));
    LEVADA_ASSIGN_OR_RETURN(const array ids, required<array>(*entry, "ids", "a list of integers (post_processor)"));
    for (const JsonElement element : ids) {
      std::int64_t id = -1;
      if (element.get(id) != simdjson::SUCCESS || id < 0 || id >= vocabulary_size) {
        return data_loss("post_processor.special_tokens " + in_quotes(name) + " has an id outside the vocabulary");
      }
      (after ? spec.suffix : spec.prefix).push_back(static_cast<Token>(id));
    }
  }
  return after ? Status() : data_loss("post_processor.single holds no sequence");
}

Status read_post_processor(JsonElement root, std::int64_t vocabulary_size, TokenizerSpec& spec) {
  LEVADA_ASSIGN_OR_RETURN(const auto steps, steps_of(root, "post_processor", "processors"));
  for (const JsonElement step : steps) {
    LEVADA_ASSIGN_OR_RETURN(const std::string_view type, type_of(step, "post_processor"));
    if (type == "ByteLevel") continue;  // moves offsets, which we don't report
    if (type != "TemplateProcessing") return unsupported("post_processor", type, "ByteLevel, TemplateProcessing");
    LEVADA_RETURN_IF_ERROR(read_template(step, vocabulary_size, spec));
  }
  return {};
}

Result<TokenizerSpec> read_root(JsonElement root) {
  if (!root.is_object()) return data_loss("the file must hold one JSON object");
  TokenizerSpec spec;
  VocabularyBuilder vocabulary;
  LEVADA_RETURN_IF_ERROR(read_normalizer(root, spec));
  LEVADA_RETURN_IF_ERROR(read_pre_tokenizer(root, spec));
  LEVADA_RETURN_IF_ERROR(read_decoder(root));
  LEVADA_RETURN_IF_ERROR(read_model(root, vocabulary, spec));
  LEVADA_RETURN_IF_ERROR(read_added_tokens(root, vocabulary, spec));
  vocabulary.move_into(spec);
  auto size = static_cast<std::int64_t>(spec.mergeable.size());
  for (const AddedToken& token : spec.added) size = std::max(size, std::int64_t{token.id} + 1);
  LEVADA_RETURN_IF_ERROR(read_post_processor(root, size, spec));
  return spec;
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_json(const std::filesystem::path& file) {
  LEVADA_ASSIGN_OR_RETURN(const std::string content, read_small_file(file, kMaxFileBytes));
  simdjson::dom::parser parser;
  JsonElement root;
  if (const auto error = parser.parse(simdjson::padded_string(content)).get(root); error != simdjson::SUCCESS) {
    return data_loss(file.string() + ": " + simdjson::error_message(error));
  }
  auto spec = read_root(root);
  if (!spec.ok()) return Status(spec.status().code(), file.string() + ": " + spec.status().message());
  return spec;
}

}  // namespace levada::text
