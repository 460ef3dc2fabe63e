#include "text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <exception>

#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"
#include "json.h"
#include "render_budget.h"
#include "text/utf8.h"

namespace levada::text {
namespace {

constexpr std::size_t kMaxSourceBytes = 256 << 10;
constexpr std::size_t kMaxBlockTokens = 4096;  // in one {{ }} or {% %}: bounds the depth of chains like 1+1+1+…
constexpr int kMaxInputDepth = 128;
constexpr std::size_t kMaxOutputBytes = 64 << 20;
constexpr std::ptrdiff_t kStackBytes = 2 << 20;  // of the usual 8 MB of a thread
constexpr RenderBudget::Limits kParseLimits{
    .steps = 50'000'000, .live_values = 1'000'000, .bytes = 64 << 20, .stack_bytes = kStackBytes};
constexpr std::int64_t kRenderSteps = 10'000'000;
constexpr std::int64_t kLiveValues = 2'000'000;
constexpr std::int64_t kRenderBytes = 256 << 20;  // copied text, plus kBytesPerInputByte for every byte of input
constexpr std::int64_t kBytesPerInputByte = 64;

// What raise_exception() throws. Not a std::exception, so that the engine doesn't wrap it in its own words.
struct TemplateRaised {
  std::string message;
};

Status limit_hit(const RenderLimit& limit) {
  return invalid_argument(std::string("the chat template exceeds the limit on ") + limit.what);
}

// Runs `work`, turning whatever the engine throws into a Status.
template <class T, class Work>
Result<T> guarded(const Work& work) {
  try {
    return work();
  } catch (const TemplateRaised& raised) {
    return invalid_argument(raised.message);
  } catch (const RenderLimit& limit) {
    return limit_hit(limit);
  } catch (const std::exception& error) {
    return invalid_argument(std::string("chat template: ") + error.what());
  }
}

// The engine does this too, in quadratic time.
std::string with_unix_newlines(const std::string& source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r')
      out += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n')
      out += '\n';
  }
  return out;
}

Status check_blocks(const std::vector<jinja::token>& tokens) {
  std::size_t count = 0;
  for (const jinja::token& token : tokens) {
    const bool opens = token.t == jinja::token::open_expression || token.t == jinja::token::open_statement;
    count = opens ? 0 : count + 1;
    if (count > kMaxBlockTokens && token.t != jinja::token::text && token.t != jinja::token::comment) {
      return invalid_argument("chat template: one block has more than " + std::to_string(kMaxBlockTokens) + " tokens");
    }
  }
  return {};
}

Status check_input_depth(std::string_view json) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\')
      ++i;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == '[' || c == '{'))
      ++depth;
    else if (!in_string && (c == ']' || c == '}'))
      --depth;
    if (depth > kMaxInputDepth) {
      return invalid_argument("chat template: the input is nested deeper than " + std::to_string(kMaxInputDepth));
    }
  }
  return {};
}

jinja::value raise_exception(const jinja::func_args& args) {
  args.ensure_vals<jinja::value_string>();
  throw TemplateRaised{args.get_pos(0)->as_string().str()};
}

// range(stop), range(start, stop), range(start, stop, step); the items are charged before they are made.
jinja::value bounded_range(const jinja::func_args& args) {
  args.ensure_count(1, 3);
  args.ensure_vals<jinja::value_int, jinja::value_int, jinja::value_int>(true, false, false);
  const bool one = args.count() == 1;
  const std::int64_t start = one ? 0 : args.get_pos(0)->as_int();
  const std::int64_t stop = args.get_pos(one ? 0 : 1)->as_int();
  const std::int64_t step = args.count() == 3 ? args.get_pos(2)->as_int() : 1;
  if (step == 0) throw std::invalid_argument("range() step argument must not be zero");
  const __int128 span = step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = span <= 0 ? 0 : (span + stride - 1) / stride;
  RenderBudget::charge_steps(static_cast<std::int64_t>(std::min<__int128>(count, INT64_MAX / 2)));
  auto out = jinja::mk_val<jinja::value_array>();
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i) {
    out->push_back(jinja::mk_val<jinja::value_int>(start + i * step));
  }
  return out;
}

// The engine's own uses localtime(), whose buffer all threads share.
jinja::value strftime_now(const jinja::func_args& args) {
  args.ensure_vals<jinja::value_string>();
  const std::string format = args.get_pos(0)->as_string().str();
  std::tm broken_down{};
  localtime_r(&args.ctx.current_time, &broken_down);
  char text[256];
  const std::size_t size = std::strftime(text, sizeof text, format.c_str(), &broken_down);
  if (size == 0 && !format.empty()) throw std::invalid_argument("strftime_now: the format gives no or too long a text");
  return jinja::mk_val<jinja::value_string>(std::string(text, size));
}

std::string run(const jinja::program& program, const std::string& source, std::string_view inputs_json) {
  jinja::context context(source);
  jinja::global_from_json(context, common_json::parse(std::string(inputs_json)), false);
  // After the inputs: a request's template arguments don't replace functions.
  context.set_val("raise_exception", jinja::mk_val<jinja::value_func>("raise_exception", raise_exception));
  context.set_val("range", jinja::mk_val<jinja::value_func>("range", bounded_range));
  context.set_val("strftime_now", jinja::mk_val<jinja::value_func>("strftime_now", strftime_now));
  const auto parts = jinja::runtime::gather_string_parts(jinja::runtime(context).execute(program));
  return jinja::render_string_parts(parts);
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::program program;
  std::string source;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(const std::string& source) {
  if (source.size() > kMaxSourceBytes) {
    return invalid_argument("chat template: the source has " + std::to_string(source.size()) + " bytes, the limit is " +
                            std::to_string(kMaxSourceBytes));
  }
  return guarded<std::unique_ptr<ChatTemplate>>([&]() -> Result<std::unique_ptr<ChatTemplate>> {
    const RenderBudget budget(kParseLimits);
    const jinja::lexer_result lexed = jinja::lexer().tokenize(with_unix_newlines(source));
    LEVADA_RETURN_IF_ERROR(check_blocks(lexed.tokens));
    auto impl = std::make_unique<Impl>(Impl{jinja::parse_from_tokens(lexed), lexed.source});
    return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
  });
}

Result<std::string> ChatTemplate::render(std::string_view inputs_json) const {
  LEVADA_RETURN_IF_ERROR(check_input_depth(inputs_json));
  return guarded<std::string>([&]() -> Result<std::string> {
    const RenderBudget budget(
        {.steps = kRenderSteps,
         .live_values = kLiveValues,
         .bytes = kRenderBytes + kBytesPerInputByte * static_cast<std::int64_t>(inputs_json.size()),
         .stack_bytes = kStackBytes});
    const std::string rendered = run(impl_->program, impl_->source, inputs_json);
    if (rendered.size() > kMaxOutputBytes) throw RenderLimit{"output bytes"};
    // Indexing and slicing work on bytes and may have cut a character.
    Utf8Sanitizer sanitizer;
    std::string text;
    sanitizer.push(rendered, text);
    sanitizer.finish(text);
    return text;
  });
}

}  // namespace levada::text
