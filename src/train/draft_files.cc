#include "train/draft_files.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/hex.h"
#include "files/tensor_source.h"
#include "nn/tensor.h"

namespace levada::train {
namespace {

const char* file_type(at::ScalarType type) { return type == at::kBFloat16 ? "BF16" : "F32"; }

files::Encoding encoding(at::ScalarType type) {
  return type == at::kBFloat16 ? files::Encoding::kBF16 : files::Encoding::kF32;
}

bool is_float(files::Encoding stored) {
  return stored == files::Encoding::kF32 || stored == files::Encoding::kBF16 || stored == files::Encoding::kF16;
}

std::string text(const std::vector<std::int64_t>& shape) { return nlohmann::json(shape).dump(); }

Status check_tensor(const files::TensorInfo* found, const nn::NamedSlice& slice, const std::string& name,
                    at::ScalarType type, bool widen, const std::string& file) {
  if (found == nullptr) return data_loss(file + ": tensor " + name + " is missing");
  if (found->shape != slice.shape) {
    return data_loss(file + ": tensor " + name + " has shape " + text(found->shape) + ", the draft's is " +
                     text(slice.shape));
  }
  if (widen ? !is_float(found->encoding) : found->encoding != encoding(type)) {
    return data_loss(file + ": tensor " + name + " is stored as " + std::string(files::to_string(found->encoding)));
  }
  return {};
}

}  // namespace

DraftImage::DraftImage(const std::vector<nn::NamedSlice>& slices, const std::vector<NamedFlat>& parts) {
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t bytes = 0;
  for (const NamedFlat& part : parts) {
    for (const nn::NamedSlice& slice : slices) {  // they lie in the buffer in this order, without gaps
      const std::uint64_t end = bytes + static_cast<std::uint64_t>(slice.count) * part.flat.element_size();
      header[part.prefix + slice.name] = {
          {"dtype", file_type(part.flat.scalar_type())}, {"shape", slice.shape}, {"data_offsets", {bytes, end}}};
      bytes = end;
    }
    host_.push_back(part.flat.cpu());
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  header_.assign(reinterpret_cast<const char*>(&length), sizeof length);
  header_ += text;
}

std::vector<std::string_view> DraftImage::pieces() const {
  std::vector<std::string_view> all{header_};
  for (const at::Tensor& flat : host_) all.emplace_back(static_cast<const char*>(flat.data_ptr()), flat.nbytes());
  return all;
}

std::string checksum(const at::Tensor& flat) {
  const at::Tensor host = flat.cpu();
  return hex64(hash64({static_cast<const std::byte*>(host.data_ptr()), host.nbytes()}));
}

Status read_draft_safetensors(const std::filesystem::path& path, const std::vector<nn::NamedSlice>& slices,
                              const std::vector<NamedFlat>& parts, bool widen) {
  const std::string file = path.string();
  LEVADA_ASSIGN_OR_RETURN(const auto source, files::open_safetensors(path));
  std::size_t known = 0;
  for (const NamedFlat& part : parts) {
    for (const nn::NamedSlice& slice : slices) {
      const std::string name = part.prefix + slice.name;
      LEVADA_RETURN_IF_ERROR(check_tensor(source->find(name), slice, name, part.flat.scalar_type(), widen, file));
      ++known;
    }
  }
  if (source->tensors().size() != known) {
    return data_loss(file + ": holds " + std::to_string(source->tensors().size()) + " tensors, the draft has " +
                     std::to_string(known));
  }
  for (const NamedFlat& part : parts) {
    for (const nn::NamedSlice& slice : slices) {
      const files::TensorInfo& info = *source->find(part.prefix + slice.name);
      const at::Tensor host = at::empty({slice.count}, at::TensorOptions().dtype(at::kFloat));
      files::decode_to_f32(info, 0, slice.count, host.data_ptr<float>());
      part.flat.narrow(0, slice.first, slice.count).copy_(host);
    }
  }
  return {};
}

}  // namespace levada::train
