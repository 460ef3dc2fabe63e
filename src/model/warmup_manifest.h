// What: the warm-up manifest: what one start has measured, for the next start of the same binary on the same GPU (S12).
// Owner: a file, shared by all processes of a user; texts are the caller's.
// Thread: any. Of two that write at once one wins, whole.
// Invariant: parts are given out only if the file is undamaged and every word of its key is the reader's.
// Format: "levada warm-up 1 " and 16 hex digits, XXH3-64 of all bytes after that line; lines "build …", "gpu …",
// "driver …", "model …"; for each part a line "part NAME BYTES", the bytes, a line end.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace levada::model {

// All that a measured choice depends on. Line ends in these texts become spaces.
struct WarmupKey {
  std::string build, gpu, driver, model;
};
// By name. Names are single words.
using WarmupParts = std::map<std::string, std::string>;

std::string encode_manifest(const WarmupKey& key, const WarmupParts& parts);
// kDataLoss if damaged, kFailedPrecondition naming what differs if made for another key.
Result<WarmupParts> decode_manifest(std::string_view text, const WarmupKey& key);

// Named after GPU and model: another build or driver replaces the file.
std::filesystem::path manifest_file(const std::filesystem::path& folder, const WarmupKey& key);
// As decode_manifest(); kNotFound if there is no file.
Result<WarmupParts> read_manifest(const std::filesystem::path& file, const WarmupKey& key);
// Makes the folder if need be; the file is replaced by a rename.
Status write_manifest(const std::filesystem::path& file, const WarmupKey& key, const WarmupParts& parts);

}  // namespace levada::model
