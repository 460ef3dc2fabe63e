#include "grammar/compiler.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine_log.h"
#include "grammar/compiled.h"
#include "text/utf8.h"
#include "work_limit.h"

namespace levada::grammar {

namespace {

using xgrammar::TokenizerInfo;

TokenizerInfo vocabulary(const text::Tokenizer& tokenizer, std::int32_t vocab_size,
                         const std::vector<text::Token>& stop_ids) {
  std::vector<std::string> tokens;
  tokens.reserve(static_cast<std::size_t>(vocab_size));
  for (text::Token id = 0; id < vocab_size; ++id) {
    // An empty text marks what no grammar's text is made of.
    const bool plain = id < tokenizer.vocab_size() && !tokenizer.is_special(id);
    tokens.emplace_back(plain ? tokenizer.bytes(id) : std::string_view());
  }
  return TokenizerInfo(tokens, xgrammar::VocabType::RAW, vocab_size, stop_ids);
}

// The deepest nesting of brackets; those in strings count too, which only makes it stricter.
std::int32_t nesting(std::string_view text) {
  std::int32_t depth = 0, deepest = 0;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ')' || c == ']' || c == '}') --depth;
  }
  return deepest;
}

// The engine's messages name their source line first: "Check failed: (…) is false: what is wrong".
std::string plain_message(std::string text) {
  constexpr std::string_view kEnd = " is false: ";
  if (const auto at = text.find(kEnd); at != std::string::npos) text.erase(0, at + kEnd.size());
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  constexpr std::size_t kMostBytes = 400;  // it may quote the source
  std::string plain;
  text::Utf8Sanitizer sanitizer;
  sanitizer.push(std::string_view(text).substr(0, kMostBytes), plain);
  return text.size() > kMostBytes ? plain + "…" : plain;
}

}  // namespace

struct Compiler::Impl {
  struct Kept {
    Source source;
    std::shared_ptr<const Grammar> grammar;
    std::size_t bytes;
  };
  struct HashSource {
    std::size_t operator()(const Source& source) const {
      return std::hash<std::string_view>()(source.text) * 31 + static_cast<std::size_t>(source.kind);
    }
  };

  Impl(const text::Tokenizer& tokenizer, std::int32_t vocab_size, std::vector<text::Token> the_stop_ids,
       const Limits& the_limits)
      : limits(the_limits), stop_ids(std::move(the_stop_ids)), tokenizer_(tokenizer), vocab_size_(vocab_size) {}

  xgrammar::GrammarCompiler& engine() {
    std::call_once(engine_made_, [&] {
      // One thread: the calling one, whose work is limited.
      engine_.emplace(vocabulary(tokenizer_, vocab_size_, stop_ids), 1, true,
                      static_cast<std::int64_t>(limits.kept_bytes) * 3);
    });
    return *engine_;
  }

  std::shared_ptr<const Grammar> find(const Source& source);
  std::shared_ptr<const Grammar> keep(const Source& source, std::shared_ptr<const Grammar> grammar);
  xgrammar::CompiledGrammar run_engine(const Source& source);
  Result<std::shared_ptr<const Grammar>> compile(const Source& source);

  const Limits limits;
  const std::vector<text::Token> stop_ids;

  std::mutex mutex;      // of all below
  std::list<Kept> kept;  // the last used first
  std::unordered_map<Source, std::list<Kept>::iterator, HashSource> by_source;
  Stats stats;

 private:
  const text::Tokenizer& tokenizer_;
  const std::int32_t vocab_size_;
  std::once_flag engine_made_;
  std::optional<xgrammar::GrammarCompiler> engine_;
};

std::shared_ptr<const Grammar> Compiler::Impl::find(const Source& source) {
  const std::lock_guard lock(mutex);
  const auto it = by_source.find(source);
  if (it == by_source.end()) return nullptr;
  kept.splice(kept.begin(), kept, it->second);
  ++stats.reused;
  return it->second->grammar;
}

std::shared_ptr<const Grammar> Compiler::Impl::keep(const Source& source, std::shared_ptr<const Grammar> grammar) {
  constexpr std::size_t kEntryBytes = 256;
  const std::size_t bytes = grammar->compiled.MemorySizeBytes() + 2 * source.text.size() + kEntryBytes;
  const std::lock_guard lock(mutex);
  ++stats.compiled;
  if (const auto it = by_source.find(source); it != by_source.end()) return it->second->grammar;  // somebody was faster
  kept.push_front({source, std::move(grammar), bytes});
  by_source.emplace(source, kept.begin());
  stats.kept_bytes += bytes;
  std::shared_ptr<const Grammar> result = kept.front().grammar;
  while (stats.kept_bytes > limits.kept_bytes) {
    stats.kept_bytes -= kept.back().bytes;
    by_source.erase(kept.back().source);
    kept.pop_back();
  }
  stats.kept = kept.size();
  return result;
}

// Between two tokens of JSON. Models like to go on with blanks; the deepest usual indentation stays below.
constexpr int kMostBlanks = 32;

xgrammar::CompiledGrammar Compiler::Impl::run_engine(const Source& source) {
  switch (source.kind) {
    case Source::Kind::kJsonSchema:
      return engine().CompileJSONSchema(source.text, true, std::nullopt, std::nullopt, true, kMostBlanks);
    case Source::Kind::kRegex: return engine().CompileRegex(source.text);
    case Source::Kind::kEbnf: return engine().CompileGrammar(source.text);
    case Source::Kind::kStructuralTag: break;
  }
  return engine().CompileStructuralTag(source.text);
}

Result<std::shared_ptr<const Grammar>> Compiler::Impl::compile(const Source& source) {
  if (source.text.size() > limits.source_bytes) {
    return invalid_argument("is " + std::to_string(source.text.size()) + " bytes long; the limit is " +
                            std::to_string(limits.source_bytes));
  }
  if (nesting(source.text) > limits.nesting) {
    return invalid_argument("nests more than " + std::to_string(limits.nesting) + " levels");
  }
  if (text::find_invalid_utf8(source.text) != std::string_view::npos) return invalid_argument("is not valid UTF-8");
  EngineWarnings warnings;
  try {
    engine();  // not this source's work
    const WorkLimit limit({limits.cpu_ms * 1000, limits.mask_bytes});
    auto grammar = std::make_shared<const Grammar>(run_engine(source), stop_ids);
    if (warnings.all().empty()) return std::shared_ptr<const Grammar>(std::move(grammar));
  } catch (const WorkLimitHit& hit) {
    return invalid_argument("can't be used: it " + hit.what);
  } catch (const std::bad_alloc&) {
    return invalid_argument("can't be used: it takes too much memory");
  } catch (const std::exception& error) {
    return invalid_argument("can't be used: " + plain_message(error.what()));
  }
  return invalid_argument("not supported: " + plain_message(warnings.all().front()));
}

Compiler::Compiler(const text::Tokenizer& tokenizer, std::int32_t vocab_size, std::vector<text::Token> stop_ids,
                   Limits limits) {
  LEVADA_CHECK(vocab_size >= tokenizer.vocab_size(), "every id of the tokenizer lies in the model's vocabulary");
  LEVADA_CHECK(!stop_ids.empty(), "an answer needs a token that ends it");
  impl_ = std::make_unique<Impl>(tokenizer, vocab_size, std::move(stop_ids), limits);
}

Compiler::~Compiler() = default;

Result<std::shared_ptr<const Grammar>> Compiler::compile(const Source& source) {
  if (auto known = impl_->find(source)) return known;
  auto grammar = impl_->compile(source);
  if (grammar.ok()) return impl_->keep(source, std::move(grammar).value());
  const std::lock_guard lock(impl_->mutex);
  ++impl_->stats.refused;
  return grammar.status();
}

Compiler::Stats Compiler::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

}  // namespace levada::grammar
