#include "text/tokenizer_spec.h"

#include <fstream>
#include <system_error>

#include "text/byte_alphabet.h"

namespace levada::text {

Status VocabularyBuilder::claim(std::int64_t id, std::string_view symbols) {
  if (id < 0 || id >= kMaxVocabulary) {
    return data_loss("vocabulary: token " + in_quotes(symbols) + " has id " + std::to_string(id) +
                     ", allowed are 0 to " + std::to_string(kMaxVocabulary - 1));
  }
  if (symbols.size() > kMaxTokenBytes) {
    return data_loss("vocabulary: token " + std::to_string(id) + " has " + std::to_string(symbols.size()) +
                     " bytes, the limit is " + std::to_string(kMaxTokenBytes));
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= taken_.size()) {
    taken_.resize(index + 1, false);
    mergeable_.resize(index + 1);
    verbatim_.resize(index + 1);
  }
  if (taken_[index]) return data_loss("vocabulary: id " + std::to_string(id) + " is given to two tokens");
  taken_[index] = true;
  if (!ids_.emplace(symbols, static_cast<Token>(id)).second) {
    return data_loss("vocabulary: token " + in_quotes(symbols) + " stands there twice");
  }
  return {};
}

Status VocabularyBuilder::add(std::int64_t id, std::string_view symbols) {
  LEVADA_RETURN_IF_ERROR(claim(id, symbols));
  auto& slot = mergeable_[static_cast<std::size_t>(id)];
  if (auto bytes = bytes_of_symbols(symbols))
    slot = std::move(*bytes);
  else
    verbatim_[static_cast<std::size_t>(id)] = symbols;
  return {};
}

Status VocabularyBuilder::add_verbatim(std::int64_t id, std::string_view text) {
  LEVADA_RETURN_IF_ERROR(claim(id, text));
  verbatim_[static_cast<std::size_t>(id)] = text;
  return {};
}

Status VocabularyBuilder::add_merge(std::string_view left, std::string_view right) {
  const auto left_id = find(left), right_id = find(right);
  const std::string joined = std::string(left).append(right);
  const auto result = find(joined);
  if (!left_id || !right_id || !result) {
    const std::string_view unknown = !left_id ? left : !right_id ? right : std::string_view(joined);
    return data_loss("merges[" + std::to_string(merges_.size()) + "]: " + in_quotes(unknown) +
                     " is not in the vocabulary");
  }
  merges_.push_back({*left_id, *right_id, *result});
  return {};
}

std::optional<Token> VocabularyBuilder::find(std::string_view symbols) const {
  const auto entry = ids_.find(symbols);
  return entry == ids_.end() ? std::nullopt : std::optional<Token>(entry->second);
}

void VocabularyBuilder::move_into(TokenizerSpec& spec) {
  spec.mergeable = std::move(mergeable_);
  spec.verbatim = std::move(verbatim_);
  spec.merges = std::move(merges_);
}

Result<std::string> read_small_file(const std::filesystem::path& file, std::uint64_t limit) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return not_found(file.string() + " is not a readable file");
  const std::uint64_t size = std::filesystem::file_size(file, error);
  if (error) return unavailable(file.string() + ": " + error.message());
  if (size > limit) {
    return data_loss(file.string() + " has " + std::to_string(size) + " bytes, the limit is " + std::to_string(limit));
  }
  std::string content(size, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(content.data(), static_cast<std::streamsize>(size));
  if (!stream) return unavailable(file.string() + " could not be read whole");
  return content;
}

}  // namespace levada::text
