#include <map>
#include <set>
#include <system_error>

#include "base/mapped_file.h"
#include "files/layout.h"
#include "files/safetensors_header.h"
#include "files/tensor_table.h"

namespace levada::files {
namespace {

class MappedTensors final : public TensorSource {
 public:
  MappedTensors(std::vector<MappedFile> files, TensorTable table)
      : files_(std::move(files)), table_(std::move(table)) {}

  const TensorInfo* find(std::string_view name) const override { return table_.find(name); }
  const std::vector<TensorInfo>& tensors() const override { return table_.tensors(); }

  void drop_resident(const TensorInfo& tensor) const override {
    for (const MappedFile& file : files_) {
      const std::span<const std::byte> all = file.bytes();
      if (tensor.bytes.data() >= all.data() && tensor.bytes.data() < all.data() + all.size())
        file.drop_resident(tensor.bytes);
    }
  }

 private:
  std::vector<MappedFile> files_;
  TensorTable table_;
};

// What a weight's shard offers, by shard file name.
using Shards = std::map<std::string, TensorTable>;

Status open_shards(const std::filesystem::path& folder, const std::map<std::string, std::string>& shard_of,
                   std::vector<MappedFile>& files, Shards& shards) {
  for (const auto& [weight, shard] : shard_of) {
    if (shards.contains(shard)) continue;
    const std::filesystem::path path = folder / shard;
    Result<MappedFile> file = MappedFile::open(path);
    if (!file.ok())
      return Status(file.status().code(), file.status().message() + " (the shard of weight " + in_quotes(weight) + ")");
    LEVADA_ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors, parse_safetensors(file->bytes(), path.string()));
    LEVADA_ASSIGN_OR_RETURN(TensorTable table, TensorTable::build(std::move(tensors), path.string()));
    shards.emplace(shard, std::move(table));
    files.push_back(std::move(file).value());
  }
  return {};
}

Result<std::unique_ptr<TensorSource>> open_sharded(const std::filesystem::path& folder,
                                                   const std::filesystem::path& index) {
  LEVADA_ASSIGN_OR_RETURN(const MappedFile index_file, MappedFile::open(index));
  LEVADA_ASSIGN_OR_RETURN(const auto shard_of, parse_shard_index(index_file.bytes(), index.string()));
  std::vector<MappedFile> files;
  Shards shards;
  LEVADA_RETURN_IF_ERROR(open_shards(folder, shard_of, files, shards));

  // The index decides: what a shard holds beyond it (another shard's copy, say) isn't offered.
  std::vector<TensorInfo> tensors;
  for (const auto& [weight, shard] : shard_of) {
    const TensorInfo* tensor = shards.at(shard).find(weight);
    if (tensor == nullptr)
      return data_loss(index.string() + ": weight " + in_quotes(weight) + " is not in its shard " + in_quotes(shard));
    tensors.push_back(*tensor);
  }
  LEVADA_ASSIGN_OR_RETURN(TensorTable table, TensorTable::build(std::move(tensors), index.string()));
  return std::unique_ptr<TensorSource>(new MappedTensors(std::move(files), std::move(table)));
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_safetensors(const std::filesystem::path& file) {
  LEVADA_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(file));
  LEVADA_ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors, parse_safetensors(mapped.bytes(), file.string()));
  LEVADA_ASSIGN_OR_RETURN(TensorTable table, TensorTable::build(std::move(tensors), file.string()));
  std::vector<MappedFile> files;
  files.push_back(std::move(mapped));
  return std::unique_ptr<TensorSource>(new MappedTensors(std::move(files), std::move(table)));
}

Result<std::unique_ptr<TensorSource>> open_safetensors_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return not_found(folder.string() + ": is not a folder");
  const std::filesystem::path single = folder / "model.safetensors";
  if (std::filesystem::exists(single, ignored)) return open_safetensors(single);
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  if (std::filesystem::exists(index, ignored)) return open_sharded(folder, index);
  return not_found(folder.string() + ": holds neither model.safetensors nor model.safetensors.index.json");
}

}  // namespace levada::files
