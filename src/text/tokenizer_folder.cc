// Writes what tokenizer_json.cc and tokenizer_config.cc read. The fields are those of Hugging Face's tokenizers library.
#include "text/tokenizer_folder.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <system_error>

#include "base/durable_file.h"
#include "base/hash.h"
#include "base/hex.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_spec.h"

namespace levada::text {
namespace {

namespace fs = std::filesystem;

void append_string(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[7];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned char>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string_view boolean(bool value) { return value ? "true" : "false"; }

// What the file calls an id; empty: the id isn't in the vocabulary.
std::string name_of(const TokenizerSpec& spec, Token id) {
  const auto index = static_cast<std::size_t>(id);
  return spec.verbatim[index].empty() ? symbols_of_bytes(spec.mergeable[index]) : spec.verbatim[index];
}

std::string pre_tokenizer(PreTokenizer kind) {
  constexpr std::string_view kByteLevel =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":)";
  if (kind == PreTokenizer::kGpt2) return std::string(kByteLevel) + "true}";
  std::string steps = R"({"type":"Sequence","pretokenizers":[)";
  if (kind == PreTokenizer::kSmollm) {
    return steps + R"({"type":"Digits","individual_digits":true},)" + std::string(kByteLevel) + "true}]}";
  }
  steps += R"({"type":"Split","pattern":{"Regex":)";
  append_string(regex_of(kind), steps);
  return steps + R"(},"behavior":"Isolated","invert":false},)" + std::string(kByteLevel) + "false}]}";
}

void append_special(const TokenizerSpec& spec, const std::vector<Token>& ids, std::string& single) {
  for (const Token id : ids) {
    single += R"({"SpecialToken":{"type_id":0,"id":)";
    append_string(name_of(spec, id), single);
    single += "}},";
  }
}

std::string post_processor(const TokenizerSpec& spec) {
  if (spec.prefix.empty() && spec.suffix.empty()) return "null";
  std::string single, specials;
  append_special(spec, spec.prefix, single);
  single += R"({"Sequence":{"id":"A","type_id":0}},)";
  append_special(spec, spec.suffix, single);
  single.pop_back();
  for (const auto* ids : {&spec.prefix, &spec.suffix}) {
    for (const Token id : *ids) {
      std::string name;
      append_string(name_of(spec, id), name);
      if (specials.find(name + ":{") != std::string::npos) continue;
      specials += (specials.empty() ? "" : ",") + name + R"(:{"id":)" + name + ",\"ids\":[" + std::to_string(id) +
                  "],\"tokens\":[" + name + "]}";
    }
  }
  return R"({"type":"TemplateProcessing","single":[)" + single +
         R"(],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{)" +
         specials + "}}";
}

std::string added_tokens(const TokenizerSpec& spec) {
  std::string out;
  for (const AddedToken& token : spec.added) {
    out += (out.empty() ? "{\"id\":" : ",{\"id\":") + std::to_string(token.id) + ",\"content\":";
    append_string(token.text, out);
    out += std::string(",\"single_word\":") + std::string(boolean(token.single_word)) +
           ",\"lstrip\":" + std::string(boolean(token.lstrip)) + ",\"rstrip\":" + std::string(boolean(token.rstrip)) +
           ",\"normalized\":" + std::string(boolean(token.normalized)) +
           ",\"special\":" + std::string(boolean(token.special)) + "}";
  }
  return out;
}

std::string model(const TokenizerSpec& spec) {
  std::string out = R"({"type":"BPE","dropout":null,"unk_token":)";
  if (spec.bpe.unknown) {
    append_string(name_of(spec, *spec.bpe.unknown), out);
  } else {
    out += "null";
  }
  out += R"(,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":)";
  out += boolean(spec.bpe.fuse_unknown);
  out += R"(,"byte_fallback":false,"ignore_merges":)";
  out += boolean(spec.bpe.ignore_merges);
  out += ",\"vocab\":{";
  bool first = true;
  for (std::size_t id = 0; id < spec.mergeable.size(); ++id) {
    const std::string name = name_of(spec, static_cast<Token>(id));
    if (name.empty()) continue;
    if (!std::exchange(first, false)) out += ',';
    append_string(name, out);
    out += ':' + std::to_string(id);
  }
  out += "},\"merges\":[";
  first = true;
  for (const Merge& merge : spec.merges) {
    out += std::exchange(first, false) ? "[" : ",[";
    append_string(name_of(spec, merge.left), out);
    out += ',';
    append_string(name_of(spec, merge.right), out);
    out += ']';
  }
  return out + "]}";
}

std::string config(const TokenizerSpec& spec) {
  std::string out = R"({"tokenizer_class":"PreTrainedTokenizerFast","clean_up_tokenization_spaces":false)";
  const auto add = [&](const char* key, const std::string& value) {
    out += std::string(",\"") + key + "\":";
    append_string(value, out);
  };
  if (spec.bos) add("bos_token", name_of(spec, *spec.bos));
  if (spec.eos) add("eos_token", name_of(spec, *spec.eos));
  if (!spec.chat_template.empty()) add("chat_template", spec.chat_template);
  return out + "}";
}

}  // namespace

Result<TokenizerFiles> tokenizer_files(const files::GgufFile& gguf, const std::string& file) {
  LEVADA_ASSIGN_OR_RETURN(const TokenizerSpec spec, read_tokenizer_gguf(gguf, file));
  return TokenizerFiles{
      std::string(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)") + added_tokens(spec) +
          "],\"normalizer\":" + (spec.nfc ? R"({"type":"NFC"})" : "null") +
          ",\"pre_tokenizer\":" + pre_tokenizer(spec.pre_tokenizer) + ",\"post_processor\":" + post_processor(spec) +
          R"(,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})" +
          ",\"model\":" + model(spec) + "}",
      config(spec)};
}

Result<fs::path> write_tokenizer_folder(const TokenizerFiles& files, const fs::path& parent) {
  Hash64Stream hash;
  for (const std::string* content : {&files.tokenizer_json, &files.tokenizer_config_json}) {
    hash.update(std::as_bytes(std::span(*content)));
  }
  const fs::path folder = parent / ("tokenizer-" + hex64(hash.digest()));
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder;
  const fs::path fresh = folder.string() + "." + std::to_string(::getpid());
  fs::create_directories(fresh, error);
  if (error) return unavailable(fresh.string() + ": " + error.message());
  const std::array<std::string_view, 1> tokenizer{files.tokenizer_json}, settings{files.tokenizer_config_json};
  LEVADA_RETURN_IF_ERROR(write_synced(fresh / "tokenizer.json", tokenizer));
  LEVADA_RETURN_IF_ERROR(write_synced(fresh / "tokenizer_config.json", settings));
  fs::rename(fresh, folder, error);
  if (!error) return folder;
  std::error_code ignored;
  fs::remove_all(fresh, ignored);
  if (fs::is_directory(folder, ignored)) return folder;  // another process was faster
  return unavailable(folder.string() + ": " + error.message());
}

}  // namespace levada::text
