#include "model/draft_vocabulary.h"

#include <cstring>

#include "files/printed.h"

namespace levada::model {
namespace {

const files::TensorInfo* find_either(const files::TensorSource& source, const std::string& name) {
  const files::TensorInfo* const plain = source.find(name);
  return plain != nullptr ? plain : source.find("model." + name);
}

Status check_list(const files::TensorInfo& info, std::int64_t size, bool numbers, const std::string& file) {
  if (info.shape != std::vector<std::int64_t>{size}) {
    return data_loss(file + ": tensor " + info.name + " has shape " + files::to_string(info.shape) +
                     ", the configuration demands " + files::to_string(std::vector<std::int64_t>{size}));
  }
  const files::Encoding wanted = numbers ? files::Encoding::kI64 : files::Encoding::kU8;
  if (info.encoding == wanted) return {};
  return data_loss(file + ": tensor " + info.name + " is stored as " + std::string(to_string(info.encoding)) + ", " +
                   std::string(to_string(wanted)) + " is needed");
}

std::int64_t whole_number(const files::TensorInfo& info, std::size_t i) {
  std::int64_t value = 0;
  std::memcpy(&value, info.bytes.data() + i * sizeof value, sizeof value);
  return value;
}

}  // namespace

bool is_draft_vocabulary(const std::string& name) {
  return name == "d2t" || name == "t2d" || name == "model.d2t" || name == "model.t2d";
}

Result<std::vector<std::int32_t>> read_draft_vocabulary(const DraftConfig& config, const files::TensorSource& source,
                                                        const std::string& file) {
  const files::TensorInfo* const offsets = find_either(source, "d2t");
  if (offsets == nullptr && config.draft_vocabulary != config.vocabulary) {
    return data_loss(file + ": tensor d2t is missing: the draft knows " + std::to_string(config.draft_vocabulary) +
                     " of the target's " + std::to_string(config.vocabulary) + " tokens");
  }
  if (offsets != nullptr) LEVADA_RETURN_IF_ERROR(check_list(*offsets, config.draft_vocabulary, true, file));
  std::vector<std::int32_t> ids;
  std::vector<bool> used(static_cast<std::size_t>(config.vocabulary), false);
  for (std::int64_t row = 0; row < config.draft_vocabulary; ++row) {
    const std::int64_t offset = offsets == nullptr ? 0 : whole_number(*offsets, static_cast<std::size_t>(row));
    if (offset < -row || offset >= config.vocabulary - row) {
      return data_loss(file + ": tensor d2t: row " + std::to_string(row) + " stands " + std::to_string(offset) +
                       " further, outside the vocabulary of " + std::to_string(config.vocabulary));
    }
    if (used[static_cast<std::size_t>(row + offset)]) {
      return data_loss(file + ": tensor d2t: token " + std::to_string(row + offset) + " has two rows");
    }
    used[static_cast<std::size_t>(row + offset)] = true;
    ids.push_back(static_cast<std::int32_t>(row + offset));
  }
  const files::TensorInfo* const marks = find_either(source, "t2d");
  if (marks == nullptr) return ids;
  LEVADA_RETURN_IF_ERROR(check_list(*marks, config.vocabulary, false, file));
  for (std::size_t token = 0; token < used.size(); ++token) {
    if ((marks->bytes[token] != std::byte{0}) == used[token]) continue;
    return data_loss(file + ": tensors t2d and d2t disagree about token " + std::to_string(token));
  }
  return ids;
}

}  // namespace levada::model
