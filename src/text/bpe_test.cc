#include "text/bpe.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace levada::text {
namespace {

struct Model {
  std::vector<std::string> bytes;
  std::vector<Merge> merges;
};

// Four letters and random merges over them, in random rank order, some of the same result.
Model random_model() {
  Model model{{"a", "b", "c", "d"}, {}};
  const int merges = *rc::gen::inRange(0, 14);
  for (int i = 0; i < merges; ++i) {
    const auto left = *rc::gen::inRange<Token>(0, static_cast<Token>(model.bytes.size()));
    const auto right = *rc::gen::inRange<Token>(0, static_cast<Token>(model.bytes.size()));
    const std::string joined =
        model.bytes[static_cast<std::size_t>(left)] + model.bytes[static_cast<std::size_t>(right)];
    auto found = std::find(model.bytes.begin(), model.bytes.end(), joined);
    if (found == model.bytes.end()) found = model.bytes.insert(model.bytes.end(), joined);
    model.merges.push_back({left, right, static_cast<Token>(found - model.bytes.begin())});
  }
  std::reverse(model.merges.begin(), model.merges.begin() + *rc::gen::inRange(0, merges + 1));
  return model;
}

// The definition: merge the lowest-ranked pair, leftmost first, until none is left.
std::vector<Token> naive(const Model& model, const std::string& piece) {
  std::vector<Token> tokens;
  for (const char c : piece) {
    if (c >= 'a' && c <= 'd') tokens.push_back(c - 'a');
  }
  while (true) {
    std::size_t best_rank = model.merges.size(), best_at = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      for (std::size_t rank = model.merges.size(); rank-- > 0;) {  // the last rule for a pair holds
        if (model.merges[rank].left != tokens[i] || model.merges[rank].right != tokens[i + 1]) continue;
        if (rank < best_rank) {
          best_rank = rank;
          best_at = i;
        }
        break;
      }
    }
    if (best_rank == model.merges.size()) return tokens;
    tokens[best_at] = model.merges[best_rank].result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(Bpe, TheLowestRankedPairIsMergedNextLeftmostFirst) {
  const bool ok = rc::check("short and long pieces", [] {
    const Model model = random_model();
    const Bpe bpe(model.bytes, model.merges, {});
    // Longer than the piece size at which the heap takes over; 'x' has no token and is dropped.
    const auto size = *rc::gen::element<std::size_t>(1, 2, 5, 23, 24, 25, 26, 60, 200);
    const auto piece = *rc::gen::container<std::string>(size, rc::gen::element('a', 'a', 'b', 'b', 'c', 'd', 'x'));
    std::vector<Token> tokens;
    Bpe::Scratch scratch;
    bpe.encode(piece, tokens, scratch);
    RC_ASSERT(tokens == naive(model, piece));
  });
  EXPECT_TRUE(ok);
}

TEST(Bpe, AByteWithoutATokenBecomesTheUnknownTokenIfThereIsOne) {
  const std::vector<std::string> bytes = {"a", "b", "<unk>"};
  const auto encode = [&](Bpe::Options options) {
    std::vector<Token> tokens;
    Bpe::Scratch scratch;
    Bpe(bytes, {}, options).encode("axyb", tokens, scratch);
    return tokens;
  };
  EXPECT_EQ(encode({}), (std::vector<Token>{0, 1}));
  EXPECT_EQ(encode({.unknown = 2}), (std::vector<Token>{0, 2, 2, 1}));
  EXPECT_EQ(encode({.unknown = 2, .fuse_unknown = true}), (std::vector<Token>{0, 2, 1}));
}

}  // namespace
}  // namespace levada::text
