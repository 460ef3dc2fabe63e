#include "store/ucx_memory.h"

namespace levada::store {
namespace {

Status missing() {
  return {StatusCode::kFailedPrecondition, "this levada was built without UCX (libucx-dev): ucx:// is not available",
          "store_ucx_url"};
}

}  // namespace

bool ucx_is_built_in() { return false; }

Result<std::unique_ptr<UcxExport>> UcxExport::create(std::span<const std::byte>, UcxMemoryType, std::string_view) {
  return missing();
}

Result<std::unique_ptr<UcxReader>> UcxReader::open(std::string_view, std::string_view) { return missing(); }

}  // namespace levada::store
