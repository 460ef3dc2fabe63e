// What: Unicode Normalization Form C, the normalizer of Qwen's tokenizers.
// Owner: none.
// Thread: any.
// Invariant: O(n log n) whatever the text holds: runs of combining marks are sorted, not inserted one by one (ICU's own
// normalizer is quadratic there, which a request could use to stop a server). Properties, decompositions and
// compositions come from ICU; the algorithm is Unicode Annex 15's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace levada::text {

// The normalized text, or nullopt when `text` (valid UTF-8) is already normalized beyond doubt.
std::optional<std::string> nfc(std::string_view text);

}  // namespace levada::text
