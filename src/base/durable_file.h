// What: files and folders that are there whole or not at all: written beside, synced, renamed.
// Owner: none.
// Thread: any.
// Invariant: after an OK answer the new content survives a power cut; after a failure the old content is still there.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "base/status.h"

namespace levada {

// Creates or truncates `file`, writes the pieces one after the other and syncs. Not atomic: for files inside a folder that
// is renamed later.
Status write_synced(const std::filesystem::path& file, std::span<const std::string_view> pieces);
// Replaces `file` by renaming a synced neighbour over it.
Status replace_file(const std::filesystem::path& file, std::span<const std::string_view> pieces);
// Makes renames inside `folder` durable.
Status sync_folder(const std::filesystem::path& folder);
// `link` points to `target` (relative), whatever it pointed to before; one rename.
Status replace_link(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace levada
