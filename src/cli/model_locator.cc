#include "cli/model_locator.h"

#include <vector>

namespace levada::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPackagedFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

// Where set-up puts the packaged model: known at build time, or beside an installed binary.
std::vector<fs::path> packaged_candidates() {
  std::vector<fs::path> candidates{fs::path(LEVADA_PACKAGED_MODEL_DIR) / kPackagedFile};
  std::error_code ignored;
  const fs::path binary = fs::read_symlink("/proc/self/exe", ignored);
  if (!ignored) candidates.push_back(binary.parent_path() / kPackagedFile);
  return candidates;
}

}  // namespace

Result<fs::path> locate_model(const std::string& name) {
  std::error_code ignored;
  if (name == "smollm2") {
    for (const fs::path& candidate : packaged_candidates()) {
      if (fs::exists(candidate, ignored)) return fs::canonical(candidate);
    }
    return not_found(
        "the packaged model is not at " + packaged_candidates().front().string() + ": run scripts/setup.sh",
        "model_path");
  }
  const fs::path path(name);
  if (!fs::exists(path, ignored)) {
    return not_found("no such file or folder: " + name +
                         " (accepted: smollm2, a .gguf file, or a folder with config.json and *.safetensors)",
                     "model_path");
  }
  return path;
}

Result<fs::path> locate_tokenizer(const fs::path& model, const std::string& asked) {
  const fs::path base = asked.empty() ? model : fs::path(asked);
  std::error_code ignored;
  if (!fs::is_directory(base, ignored)) return base;
  const fs::path file = base / "tokenizer.json";
  if (!fs::exists(file, ignored)) return not_found("no tokenizer.json in " + base.string(), "tokenizer_path");
  return file;
}

}  // namespace levada::cli
