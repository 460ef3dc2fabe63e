// Ten thousand histories of the scheduler's simulator, with priorities, retraction, aborts, failures and several choices of a
// prompt; a fifth of the requests is guided by the serving path's own guide over compiled grammars, so masks, guides put back
// and the abort of one choice of several meet the real matcher.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "grammar/compiler.h"
#include "sched/sim/history.h"
#include "serve/grammar_guide.h"
#include "support/instrumented.h"

namespace levada {
namespace {

using sched::sim::HistoryReport;

constexpr std::uint64_t kHistories = test::kInstrumented ? 300 : 10'000;

const text::Tokenizer& tokenizer() {
  static const auto tiny =
      text::Tokenizer::from_json(LEVADA_SOURCE_DIR "/tests/vectors/tiny/llama/tokenizer.json").value();
  return *tiny;
}

// Of answers that end soon, late, or never by themselves.
std::shared_ptr<core::TokenGuide> guide_of(core::RequestId id) {
  using Source = grammar::Source;
  static grammar::Compiler compiler(tokenizer(), sched::sim::kVocab, {sched::sim::kEos}, {});
  static const std::array sources{
      Source{Source::Kind::kJsonSchema, R"({"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}},
        "required":["n"]})"},
      Source{Source::Kind::kRegex, "(yes|no|[0-9]{1,6})"},
      Source{Source::Kind::kEbnf, R"x(root ::= "(" root? ")" | [a-z]+ ", " root)x"},
  };
  return std::make_shared<serve::GrammarGuide>(compiler.compile(sources[core::value(id) % sources.size()]).value());
}

TEST(Histories, TenThousandEqualTheirSoloReferencesAndLeaveNothingBehind) {
  HistoryReport total;
  for (std::uint64_t seed = 1; seed <= kHistories; ++seed) {
    const HistoryReport report = sched::sim::run_history(seed, seed % 2 == 0 ? &tokenizer() : nullptr, guide_of);
    ASSERT_EQ(report.failure, "") << "seed " << seed;
    total.add(report);
  }
  // They are worth something only if they meet what they are about.
  EXPECT_GT(total.guided_tokens, static_cast<int>(kHistories) * 5);
  EXPECT_GT(total.families_cut, static_cast<int>(kHistories) / 20);
  EXPECT_GT(total.retractions, kHistories / 4);
  EXPECT_GT(total.accepted_drafts, static_cast<int>(kHistories) * 5);
  EXPECT_GT(total.swaps, static_cast<int>(kHistories) / 2);
  std::printf(
      "%llu histories: %d requests, %llu steps, %llu retractions, %d aborted, %d failed, %d guided tokens, "
      "%d families cut, %d of %d drafts accepted, %d drafts swapped\n",
      static_cast<unsigned long long>(kHistories), total.requests, static_cast<unsigned long long>(total.steps),
      static_cast<unsigned long long>(total.retractions), total.aborted, total.failed, total.guided_tokens,
      total.families_cut, total.accepted_drafts, total.verified_drafts, total.swaps);
}

}  // namespace
}  // namespace levada
