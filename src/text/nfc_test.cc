#include "text/nfc.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unicode/normalizer2.h>

#include "support/instrumented.h"
#include "text/tokenizer.h"

namespace levada::text {
namespace {

std::string normalized(const std::string& text) { return nfc(text).value_or(text); }

// ICU's own normalizer is the reference.
std::string icu_nfc(const std::string& text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* instance = icu::Normalizer2::getNFCInstance(error);
  std::string out;
  instance->normalize(icu::UnicodeString::fromUTF8(text), error).toUTF8String(out);
  return out;
}

std::string utf8(const std::vector<std::uint32_t>& code_points) {
  icu::UnicodeString text;
  for (const std::uint32_t c : code_points) text.append(static_cast<UChar32>(c));
  std::string out;
  return text.toUTF8String(out);
}

TEST(Nfc, EveryCodePointAloneAndBehindALetterEqualsIcu) {
  for (std::uint32_t c = 1; c < 0x110000; c += test::kInstrumented ? 17 : 1) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = utf8({c, 'a', c, 0x301});
    ASSERT_EQ(normalized(text), icu_nfc(text)) << std::hex << c;
  }
}

TEST(Nfc, RunsOfMarksJamoAndLettersEqualIcu) {
  const bool ok = rc::check("random sequences", [] {
    const auto code_points = *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::oneOf(
        rc::gen::inRange<std::uint32_t>(0x41, 0x7B), rc::gen::inRange<std::uint32_t>(0xC0, 0x250),
        rc::gen::inRange<std::uint32_t>(0x300, 0x370), rc::gen::inRange<std::uint32_t>(0x1100, 0x1200),
        rc::gen::inRange<std::uint32_t>(0xAC00, 0xAC40), rc::gen::inRange<std::uint32_t>(0x1E00, 0x2000),
        rc::gen::element<std::uint32_t>(0x9C7, 0x9BE, 0x1D15E, 0x1D165, 0xFB1D, 0x2126, 0x110A5, 0x110BA)));
    const std::string text = utf8(code_points);
    RC_ASSERT(normalized(text) == icu_nfc(text));
  });
  EXPECT_TRUE(ok);
}

TEST(Nfc, AMegabyteOfAlternatingMarksIsNotQuadratic) {
  std::string text = "a";
  while (text.size() < 1 << 20) text += "\xCC\x96\xCC\x81";  // classes 220 and 230: every second one must move
  EXPECT_EQ(normalized(text).size(), text.size() - 1);       // a and the first acute become U+00E1
}

}  // namespace
}  // namespace levada::text
