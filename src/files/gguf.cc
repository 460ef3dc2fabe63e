#include "files/gguf.h"

#include "base/mapped_file.h"
#include "files/gguf_parser.h"
#include "files/tensor_table.h"

namespace levada::files {
namespace {

class MappedGguf final : public GgufFile {
 public:
  MappedGguf(MappedFile file, std::map<std::string_view, GgufValue> metadata, TensorTable table)
      : file_(std::move(file)), metadata_(std::move(metadata)), table_(std::move(table)) {}

  const TensorInfo* find(std::string_view name) const override { return table_.find(name); }
  const std::vector<TensorInfo>& tensors() const override { return table_.tensors(); }
  void drop_resident(const TensorInfo& tensor) const override { file_.drop_resident(tensor.bytes); }

  std::optional<std::int64_t> integer(std::string_view key) const override { return copy_of<std::int64_t>(key); }
  std::optional<double> number(std::string_view key) const override {
    if (const auto* integer = value_of<std::int64_t>(key)) return static_cast<double>(*integer);
    return copy_of<double>(key);
  }
  std::optional<bool> boolean(std::string_view key) const override { return copy_of<bool>(key); }
  std::optional<std::string_view> string(std::string_view key) const override { return copy_of<std::string_view>(key); }
  const std::vector<std::string_view>* strings(std::string_view key) const override {
    return value_of<std::vector<std::string_view>>(key);
  }
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const override {
    return copy_of<std::vector<std::int64_t>>(key);
  }
  std::vector<std::string> keys() const override {
    std::vector<std::string> keys;
    for (const auto& [key, value] : metadata_) keys.emplace_back(key);
    return keys;
  }

 private:
  template <class T>
  const T* value_of(std::string_view key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? nullptr : std::get_if<T>(&found->second);
  }
  template <class T>
  std::optional<T> copy_of(std::string_view key) const {
    const T* value = value_of<T>(key);
    return value == nullptr ? std::nullopt : std::optional<T>(*value);
  }

  MappedFile file_;
  std::map<std::string_view, GgufValue> metadata_;  // its views point into file_
  TensorTable table_;
};

}  // namespace

Result<std::unique_ptr<GgufFile>> GgufFile::open(const std::filesystem::path& file) {
  LEVADA_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(file));
  LEVADA_ASSIGN_OR_RETURN(GgufContents contents, parse_gguf(mapped.bytes(), file.string()));
  LEVADA_ASSIGN_OR_RETURN(TensorTable table, TensorTable::build(std::move(contents.tensors), file.string()));
  return std::unique_ptr<GgufFile>(new MappedGguf(std::move(mapped), std::move(contents.metadata), std::move(table)));
}

}  // namespace levada::files
