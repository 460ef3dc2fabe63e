#include "serve/json_fault.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace levada::serve {

namespace {

constexpr std::size_t kShownBytes = 80;  // of a key or a number

std::string shortened(std::string_view text) {
  return text.size() <= kShownBytes ? std::string(text) : std::string(text.substr(0, kShownBytes)) + "…";
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t skip_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// "" or what is wrong with a run of the characters that numbers consist of.
std::string number_fault(std::string_view text) {
  const std::size_t first = text.starts_with('-') ? 1 : 0;
  std::size_t at = skip_digits(text, first);
  bool well_formed = at > first && (text[first] != '0' || at == first + 1), whole = true;
  if (at < text.size() && text[at] == '.') {
    const std::size_t end = skip_digits(text, at + 1);
    well_formed = well_formed && end > at + 1;
    whole = false;
    at = end;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    const std::size_t digits = at + 1 < text.size() && (text[at + 1] == '+' || text[at + 1] == '-') ? at + 2 : at + 1;
    const std::size_t end = skip_digits(text, digits);
    well_formed = well_formed && end > digits;
    whole = false;
    at = end;
  }
  if (!well_formed || at != text.size()) return "is no number: " + shortened(text);
  if (!whole)
    return std::isfinite(std::strtod(std::string(text).c_str(), nullptr)) ? "" : "is out of range: " + shortened(text);
  std::int64_t wide;
  std::uint64_t natural;
  const bool fits = std::from_chars(text.data(), text.data() + text.size(), wide).ec == std::errc() ||
                    std::from_chars(text.data(), text.data() + text.size(), natural).ec == std::errc();
  return fits ? "" : "does not fit in 64 bits: " + shortened(text);
}

// The code unit of "\uXXXX" at text[at], or -1.
int code_unit(std::string_view text, std::size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return -1;
  unsigned unit = 0;
  const char* const digits = text.data() + at + 2;
  const auto [end, error] = std::from_chars(digits, digits + 4, unit, 16);
  return error == std::errc() && end == digits + 4 ? static_cast<int>(unit) : -1;
}

// "" or what is wrong with the text between two quotes.
std::string string_fault(std::string_view text) {
  if (text::find_invalid_utf8(text) != std::string_view::npos) return "is not valid Unicode text: it is no UTF-8";
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (static_cast<unsigned char>(text[at]) < 0x20) return "holds a control character that is not escaped";
    if (text[at] != '\\') continue;
    ++at;
    if (text[at] != 'u') {
      if (std::string_view("\"\\/bfnrt").find(text[at]) == std::string_view::npos) return "holds a bad escape";
      continue;
    }
    const int unit = code_unit(text, at - 1);
    if (unit < 0) return "holds a bad escape";
    at += 4;
    if (unit < 0xD800 || unit > 0xDFFF) continue;
    const int partner = unit < 0xDC00 ? code_unit(text, at + 1) : -1;
    if (partner < 0xDC00 || partner > 0xDFFF) return "is not valid Unicode text: half of a surrogate pair stands alone";
    at += 6;
  }
  return {};
}

class FaultFinder {
 public:
  FaultFinder(std::string_view body, std::size_t max_depth) : body_(body), max_depth_(max_depth) {}

  Status find() {
    while (at_ < body_.size()) {
      const char c = body_[at_];
      if (c == '"') {
        LEVADA_RETURN_IF_ERROR(read_string());
      } else if (is_digit(c) || c == '-') {
        LEVADA_RETURN_IF_ERROR(read_number());
      } else {
        ++at_;
        if (c == '{' || c == '[') {
          if (levels_.size() == max_depth_) return too_deep();
          levels_.push_back({.object = c == '{', .key_next = c == '{'});
        } else if (c == '}' || c == ']') {
          if (levels_.empty()) return {};
          levels_.pop_back();
        } else if (c == ',' && !levels_.empty()) {
          levels_.back().key_next = levels_.back().object;
          ++levels_.back().index;
        }
      }
    }
    return {};
  }

 private:
  struct Level {
    bool object = false, key_next = false;
    std::size_t index = 0;
    std::string key = {};
  };

  std::string path(std::size_t depth) const {
    std::string path;
    for (std::size_t i = 0; i < depth; ++i) {
      const Level& level = levels_[i];
      if (!level.object) {
        path += "[" + std::to_string(level.index) + "]";
      } else {
        path += (path.empty() ? "" : ".") + level.key;
      }
    }
    return path;
  }

  static Status fault_at(const std::string& path, const std::string& what) {
    return invalid_argument((path.empty() ? "the request body " : "") + what, path);
  }

  // The path of all levels would be as long as the limit: the field it begins with says enough.
  Status too_deep() const {
    return fault_at(levels_.front().object ? path(1) : "",
                    "is nested deeper than " + std::to_string(max_depth_) + " levels");
  }

  Status fault(const std::string& what) const { return what.empty() ? Status() : fault_at(path(levels_.size()), what); }

  Status read_string() {
    std::size_t end = at_ + 1;
    while (end < body_.size() && body_[end] != '"') end += body_[end] == '\\' ? 2 : 1;
    if (end >= body_.size()) {  // no end: the structure is broken
      at_ = body_.size();
      return {};
    }
    const std::string_view text = body_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (!levels_.empty() && levels_.back().key_next) {
      levels_.back().key_next = false;
      levels_.back().key = shortened(text);
    }
    return fault(string_fault(text));
  }

  Status read_number() {
    const std::size_t end = std::min(body_.find_first_not_of("0123456789+-.eE", at_), body_.size());
    const std::string_view text = body_.substr(at_, end - at_);
    at_ = end;
    return fault(number_fault(text));
  }

  std::string_view body_;
  std::size_t max_depth_;
  std::size_t at_ = 0;
  std::vector<Level> levels_;
};

}  // namespace

Status find_json_fault(std::string_view body, std::size_t max_depth) { return FaultFinder(body, max_depth).find(); }

bool may_hold_surrogates(std::string_view body) {
  return body.find("\\ud") != std::string_view::npos || body.find("\\uD") != std::string_view::npos;
}

}  // namespace levada::serve
