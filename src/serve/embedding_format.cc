// Answers of /v1/embeddings: the state of the last token after the final norm, cut to the dimensions asked for, of length 1.
#include <bit>
#include <cmath>

#include "serve/answer_format.h"
#include "serve/json_text.h"
#include "serve/logprob_json.h"

namespace levada::serve {

namespace {

static_assert(std::endian::native == std::endian::little, "base64 embeddings are little-endian floats");

std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = i; j < i + 3; ++j) {
      group = group << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0u);
    }
    for (int shift = 18; shift >= 0; shift -= 6) text += kDigits[group >> shift & 63];
  }
  for (std::size_t pad = (3 - bytes.size() % 3) % 3, i = 1; i <= pad; ++i) text[text.size() - i] = '=';
  return text;
}

void normalize(std::vector<float>& values) {
  double squares = 0;
  for (const float x : values) squares += double{x} * x;
  const double length = std::sqrt(squares);
  if (!(length > 0)) return;
  for (float& x : values) x = static_cast<float>(x / length);
}

class EmbeddingFormat final : public AnswerFormat {
 public:
  explicit EmbeddingFormat(const CallSpec& call)
      : model_(call.model), dimensions_(static_cast<std::size_t>(call.dimensions)), base64_(call.base64) {}

  // Embeddings don't stream.
  void append_opening(std::size_t, std::string&) override {}
  void append_events(std::size_t, const AnswerFold&, const core::OutputDelta&, std::string&) override {}
  void append_closing(const std::vector<AnswerFold>&, std::string&) override {}

  std::string whole(const std::vector<AnswerFold>& folds) override {
    std::int64_t tokens = 0;
    std::string out = "{\"object\":\"list\",\"data\":[";
    for (std::size_t member = 0; member < folds.size(); ++member) {
      if (member > 0) out += ',';
      out += "{\"object\":\"embedding\",\"index\":" + std::to_string(member) + ",\"embedding\":";
      append_embedding(folds[member].hidden, out);
      out += '}';
      tokens += folds[member].prompt_tokens;
    }
    out += "],\"model\":";
    append_json_string(out, model_);
    out += ",\"usage\":{\"prompt_tokens\":" + std::to_string(tokens) + ",\"total_tokens\":" + std::to_string(tokens) +
           "}}";
    return out;
  }

  bool answers_aborts() const override { return false; }

 private:
  void append_embedding(std::vector<float> values, std::string& out) const {
    if (dimensions_ > 0 && dimensions_ < values.size()) values.resize(dimensions_);
    normalize(values);
    if (base64_) {
      out += '"';
      out += base64({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
      out += '"';
      return;
    }
    out += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out += ',';
      append_float(values[i], out);
    }
    out += ']';
  }

  std::string model_;
  std::size_t dimensions_;
  bool base64_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_embedding_format(const CallSpec& call) {
  return std::make_unique<EmbeddingFormat>(call);
}

}  // namespace levada::serve
