#include "reply/tool_parser.h"

#include <utility>

#include "reply/call_text.h"
#include "reply/tag_search.h"

namespace levada::reply {

namespace {

// Tells content; blanks next to a call are the call's.
class ContentTeller {
 public:
  void text(std::string_view text, Pieces& pieces) {
    std::string all = std::exchange(blanks_, {}) + std::string(text);
    if (after_call_) all.erase(0, std::min(all.find_first_not_of(kBlanks), all.size()));
    const std::size_t last = all.find_last_not_of(kBlanks);
    const std::size_t told = last == std::string::npos ? 0 : last + 1;
    blanks_ = all.substr(told);
    if (told == 0) return;
    after_call_ = false;
    append_text(pieces, Piece::Kind::kContent, std::string_view(all).substr(0, told));
  }
  void call(Piece call, Pieces& pieces) {
    blanks_.clear();
    after_call_ = true;
    pieces.push_back(std::move(call));
  }
  void finish(Pieces& pieces) {
    if (!after_call_) append_text(pieces, Piece::Kind::kContent, blanks_);
    blanks_.clear();
  }

 private:
  std::string blanks_;
  bool after_call_ = false;
};

// Calls between <tool_call> and </tool_call>; a format says where a body ends and what it means.
class TaggedParser : public ToolParser {
 public:
  explicit TaggedParser(std::vector<Tool> tools) : tools_(std::move(tools)) {}

  void push(std::string_view text, Pieces& pieces) override {
    buffer_ += text;
    while (inside_ ? take_call(pieces) : take_text(pieces)) {
    }
  }

  void finish(Pieces& pieces) override {
    if (inside_) teller_.text(kBegin, pieces);
    teller_.text(buffer_, pieces);
    teller_.finish(pieces);
    buffer_.clear();
  }

 protected:
  static constexpr std::string_view kBegin = "<tool_call>", kEnd = "</tool_call>";
  // Where the body's end tag begins, or npos: it may still come. Called again with more text.
  virtual std::size_t find_end(const std::string& body) = 0;
  virtual bool read(std::string_view body, const std::vector<Tool>& tools, Piece& call) const = 0;

 private:
  bool take_text(Pieces& pieces) {
    const std::size_t at = buffer_.find(kBegin);
    const std::size_t told = at != std::string::npos ? at : buffer_.size() - held_for(buffer_, kBegin);
    teller_.text(std::string_view(buffer_).substr(0, told), pieces);
    inside_ = at != std::string::npos;
    buffer_.erase(0, inside_ ? at + kBegin.size() : told);
    return inside_;
  }

  bool take_call(Pieces& pieces) {
    const std::size_t at = find_end(buffer_);
    if (at == std::string::npos) return false;
    Piece call;
    if (read(std::string_view(buffer_).substr(0, at), tools_, call)) {
      teller_.call(std::move(call), pieces);
    } else {
      teller_.text(kBegin, pieces);
      teller_.text(std::string_view(buffer_).substr(0, at + kEnd.size()), pieces);
    }
    buffer_.erase(0, at + kEnd.size());
    inside_ = false;
    return true;
  }

  const std::vector<Tool> tools_;
  ContentTeller teller_;
  std::string buffer_;  // undecided; inside a call, what follows its begin tag
  bool inside_ = false;
};

// Where JSON's strings are, byte by byte.
class StringScanner {
 public:
  // False inside a string.
  bool outside_after(char c) {
    if (escaped_) {
      escaped_ = false;
    } else if (inside_ && c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      inside_ = !inside_;
    }
    return !inside_;
  }
  bool inside() const { return inside_; }

 private:
  bool inside_ = false, escaped_ = false;
};

class HermesParser final : public TaggedParser {
 public:
  using TaggedParser::TaggedParser;

 private:
  // A text of the arguments may hold the tag itself.
  std::size_t find_end(const std::string& body) override {
    for (; scanned_ < body.size(); ++scanned_) {
      if (!scanner_.inside() && body[scanned_] == kEnd[0]) {
        const std::string_view rest = std::string_view(body).substr(scanned_, kEnd.size());
        if (rest == kEnd) {
          scanner_ = {};
          return std::exchange(scanned_, 0);
        }
        if (kEnd.starts_with(rest)) return std::string::npos;
      }
      scanner_.outside_after(body[scanned_]);
    }
    return std::string::npos;
  }
  bool read(std::string_view body, const std::vector<Tool>& tools, Piece& call) const override {
    return read_json_call(body, tools, call);
  }

  StringScanner scanner_;
  std::size_t scanned_ = 0;
};

class GlmParser final : public TaggedParser {
 public:
  using TaggedParser::TaggedParser;

 private:
  // A value may hold the tag itself.
  std::size_t find_end(const std::string& body) override {
    constexpr std::string_view kValue = "<arg_value>", kValueEnd = "</arg_value>";
    for (;;) {
      const std::size_t end = body.find(kEnd, scanned_), value = body.find(kValue, scanned_);
      if (value == std::string::npos || end < value) {
        if (end != std::string::npos) scanned_ = 0;
        return end;
      }
      const std::size_t value_end = body.find(kValueEnd, value);
      if (value_end == std::string::npos) return std::string::npos;
      scanned_ = value_end + kValueEnd.size();
    }
  }
  bool read(std::string_view body, const std::vector<Tool>& tools, Piece& call) const override {
    return read_glm_call(body, tools, call);
  }

  std::size_t scanned_ = 0;
};

// Calls as bare objects, at the start or after the tag.
class LlamaParser final : public ToolParser {
 public:
  explicit LlamaParser(std::vector<Tool> tools) : tools_(std::move(tools)) {}

  void push(std::string_view text, Pieces& pieces) override {
    buffer_ += text;
    for (bool more = true; more;) {
      switch (phase_) {
        case Phase::kExpect: more = expect(pieces); break;
        case Phase::kObject: more = take_object(pieces); break;
        case Phase::kText: more = take_text(pieces); break;
      }
    }
  }

  void finish(Pieces& pieces) override {
    teller_.text(before_ + buffer_, pieces);
    teller_.finish(pieces);
    before_.clear();
    buffer_.clear();
  }

 private:
  enum class Phase { kExpect, kObject, kText };
  static constexpr std::string_view kTag = "<|python_tag|>";

  // At the start, after the tag or after a call: an object, the tag, or text.
  bool expect(Pieces& pieces) {
    const std::size_t first = buffer_.find_first_not_of(called_ ? " \t\r\n;" : kBlanks);
    if (first == std::string::npos) return false;
    const std::string_view rest = std::string_view(buffer_).substr(first);
    const bool after_tag = before_.find(kTag) != std::string::npos;
    if (rest[0] == '{') {
      take_before(first);
      scanner_ = {};
      scanned_ = depth_ = 0;
      phase_ = Phase::kObject;
    } else if (!after_tag && rest.starts_with(kTag)) {
      take_before(first + kTag.size());
    } else if (!after_tag && kTag.starts_with(rest)) {
      return false;
    } else {
      teller_.text(std::exchange(before_, {}), pieces);
      phase_ = Phase::kText;
    }
    return true;
  }

  void take_before(std::size_t size) {
    before_ += buffer_.substr(0, size);
    buffer_.erase(0, size);
  }

  bool take_object(Pieces& pieces) {
    for (; scanned_ < buffer_.size(); ++scanned_) {
      const char c = buffer_[scanned_];
      if (!scanner_.outside_after(c)) continue;
      if (c == '{') ++depth_;
      if (c == '}' && --depth_ == 0) return end_object(scanned_ + 1, pieces);
    }
    return false;
  }

  bool end_object(std::size_t size, Pieces& pieces) {
    Piece call;
    if (read_json_call(std::string_view(buffer_).substr(0, size), tools_, call)) {
      teller_.call(std::move(call), pieces);
      before_.clear();
      called_ = true;
      phase_ = Phase::kExpect;
    } else {
      teller_.text(std::exchange(before_, {}) + buffer_.substr(0, size), pieces);
      phase_ = Phase::kText;
    }
    buffer_.erase(0, size);
    return true;
  }

  bool take_text(Pieces& pieces) {
    const std::size_t at = buffer_.find(kTag);
    const std::size_t told = at != std::string::npos ? at : buffer_.size() - held_for(buffer_, kTag);
    teller_.text(std::string_view(buffer_).substr(0, told), pieces);
    buffer_.erase(0, told);
    if (at == std::string::npos) return false;
    take_before(kTag.size());
    called_ = false;
    phase_ = Phase::kExpect;
    return true;
  }

  const std::vector<Tool> tools_;
  ContentTeller teller_;
  Phase phase_ = Phase::kExpect;
  std::string buffer_;  // undecided
  std::string before_;  // the tag and blanks before what may be a call
  bool called_ = false;
  StringScanner scanner_;
  std::size_t scanned_ = 0, depth_ = 0;
};

struct Name {
  std::string_view name;
  CallFormat format;
};

constexpr Name kNames[] = {{"hermes", CallFormat::kHermes}, {"qwen", CallFormat::kHermes},
                           {"qwen25", CallFormat::kHermes}, {"llama3", CallFormat::kLlama3},
                           {"glm", CallFormat::kGlm},       {"glm45", CallFormat::kGlm},
                           {"glm47", CallFormat::kGlm}};

}  // namespace

bool call_format_of(std::string_view name, CallFormat& format) {
  for (const Name& known : kNames) {
    if (known.name != name) continue;
    format = known.format;
    return true;
  }
  return false;
}

std::string call_format_names() {
  std::string names;
  for (const Name& known : kNames) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

std::unique_ptr<ToolParser> make_tool_parser(CallFormat format, std::vector<Tool> tools) {
  switch (format) {
    case CallFormat::kHermes: return std::make_unique<HermesParser>(std::move(tools));
    case CallFormat::kLlama3: return std::make_unique<LlamaParser>(std::move(tools));
    case CallFormat::kGlm: break;
  }
  return std::make_unique<GlmParser>(std::move(tools));
}

}  // namespace levada::reply
