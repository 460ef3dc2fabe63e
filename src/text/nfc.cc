#include "text/nfc.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/utf8.h"

namespace levada::text {
namespace {

struct Mark {
  UChar32 code_point;
  std::uint8_t combining_class;
};

const UNormalizer2* normalizer() {
  static const UNormalizer2* instance = [] {
    UErrorCode error = U_ZERO_ERROR;
    const UNormalizer2* nfc = unorm2_getNFCInstance(&error);
    LEVADA_CHECK(U_SUCCESS(error), "ICU has no NFC data");
    return nfc;
  }();
  return instance;
}

// Offset of the first character that normalization might change or that could compose with what follows it.
std::size_t settled_prefix(std::string_view text) {
  std::size_t at = ascii_prefix(text);
  std::size_t starter = at > 0 ? at - 1 : 0;  // last position at which a new segment starts for certain
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    const auto code_point = static_cast<UChar32>(c.code_point);
    if (code_point >= 0x300) {
      const bool settled =
          u_getCombiningClass(code_point) == 0 && u_getIntPropertyValue(code_point, UCHAR_NFC_QUICK_CHECK) == UNORM_YES;
      if (!settled) return starter;
    }
    starter = at;
    at += c.size;
  }
  return text.size();
}

void decompose(UChar32 code_point, std::vector<Mark>& out) {
  UChar buffer[32];
  UErrorCode error = U_ZERO_ERROR;
  const std::int32_t length = unorm2_getDecomposition(normalizer(), code_point, buffer, 32, &error);
  if (U_FAILURE(error) || length < 0) {
    out.push_back({code_point, u_getCombiningClass(code_point)});
    return;
  }
  for (std::int32_t i = 0; i < length;) {
    UChar32 part;
    U16_NEXT(buffer, i, length, part);
    out.push_back({part, u_getCombiningClass(part)});
  }
}

// Canonical ordering: each run of marks with a class above 0 is sorted by class, stably.
void order(std::vector<Mark>& marks) {
  for (auto run = marks.begin(); run != marks.end();) {
    if (run->combining_class == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, marks.end(), [](const Mark& m) { return m.combining_class == 0; });
    std::stable_sort(run, end, [](const Mark& a, const Mark& b) { return a.combining_class < b.combining_class; });
    run = end;
  }
}

// Canonical composition in place: a mark joins the last starter unless one of its own class or a starter stands
// between.
void compose(std::vector<Mark>& marks) {
  std::size_t kept = 0;
  std::ptrdiff_t starter = -1;
  int previous_class = -1;  // of the last mark kept after `starter`; -1 directly behind it
  for (const Mark mark : std::vector<Mark>(marks)) {
    const bool reachable = starter >= 0 && (previous_class < mark.combining_class);
    if (reachable) {
      const UChar32 joined = unorm2_composePair(normalizer(), marks[starter].code_point, mark.code_point);
      if (joined >= 0) {
        marks[starter].code_point = joined;
        continue;
      }
    }
    if (mark.combining_class == 0) {
      starter = static_cast<std::ptrdiff_t>(kept);
      previous_class = -1;
    } else {
      previous_class = mark.combining_class;
    }
    marks[kept++] = mark;
  }
  marks.resize(kept);
}

void append_utf8(UChar32 code_point, std::string& out) {
  char bytes[U8_MAX_LENGTH];
  std::int32_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, code_point);
  out.append(bytes, static_cast<std::size_t>(size));
}

}  // namespace

std::optional<std::string> nfc(std::string_view text) {
  const std::size_t settled = settled_prefix(text);
  if (settled == text.size()) return std::nullopt;
  std::vector<Mark> marks;
  for (std::size_t at = settled; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    decompose(static_cast<UChar32>(c.code_point), marks);
    at += c.size;
  }
  order(marks);
  compose(marks);
  std::string out(text.substr(0, settled));
  for (const Mark& mark : marks) append_utf8(mark.code_point, out);
  return out;
}

}  // namespace levada::text
