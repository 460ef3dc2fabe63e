#include "text/stream_decoder.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace levada::text {
namespace {

const std::string kFile = testing::TempDir() + "/stream_decoder_test_tokenizer.json";

// Sixteen byte tokens and a few longer ones: letters, the four bytes of U+1F600, bytes that are never valid, one special.
//   id 0..7: a b c D E F . ' '   8..11: f0 9f 98 80   12: c3   13: ff   14: "<|end|>" (special)
//   15: f0 9f   16: 98 80   17: "ab"   18: "DEF"   19: U+1F600
const Tokenizer& tokenizer() {
  static const std::unique_ptr<Tokenizer> instance = [] {
    const char* symbols[] = {"a", "b", "c", "D", "E", "F", ".", "Ġ", "ð", "Ł", "ĺ", "Ģ", "Ã", "ÿ"};
    nlohmann::json vocabulary;
    for (int id = 0; id < 14; ++id) vocabulary[symbols[id]] = id;
    for (const auto& [symbol, id] :
         std::vector<std::pair<std::string, int>>{{"ðŁ", 15}, {"ĺĢ", 16}, {"ab", 17}, {"DEF", 18}, {"ðŁĺĢ", 19}}) {
      vocabulary[symbol] = id;
    }
    const nlohmann::json file = {
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"added_tokens", {{{"id", 14}, {"content", "<|end|>"}, {"special", true}}}},
        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
    std::ofstream(kFile) << file.dump();
    return Tokenizer::from_json(kFile).value();
  }();
  return *instance;
}

constexpr Token kEnd = 14;
constexpr Token kTokens = 20;

struct Answer {
  std::string text;
  std::optional<std::string> stop;
  std::vector<std::string> deltas;
};

Answer stream(const std::vector<Token>& tokens, const std::vector<std::string>& stops, bool skip_special = true,
              bool keep_stop = false) {
  StreamDecoder decoder(tokenizer(), stops, skip_special, keep_stop);
  Answer answer;
  for (const Token token : tokens) {
    std::string delta;
    answer.stop = decoder.push(token, delta);
    answer.deltas.push_back(delta);
    if (answer.stop) break;
  }
  if (!answer.stop) {
    answer.deltas.emplace_back();
    decoder.finish(answer.deltas.back());
  }
  for (const std::string& delta : answer.deltas) answer.text += delta;
  return answer;
}

// The reference: decodes the whole text anew, byte by byte, after every token. U+FFFD stands for each maximal part of an
// ill-formed sequence; an incomplete tail is left out unless `last`.
std::string naive_decode(const std::string& bytes, bool last) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t best = 0;     // longest well-formed character here
    std::size_t partial = 1;  // longest prefix of any well-formed character here
    bool incomplete = false;
    for (std::size_t size = 1; size <= 4 && at + size <= bytes.size(); ++size) {
      const std::string head = bytes.substr(at, size);
      if (find_invalid_utf8(head) == std::string::npos) {
        best = size;
        break;
      }
      for (const char* tail : {"\x80", "\x80\x80", "\x80\x80\x80", "\xBF", "\xBF\x80", "\xBF\x80\x80", "\x90\x80\x80",
                               "\xA0\x80", "\xBF\xBF"}) {
        if (find_invalid_utf8(head + tail) == std::string::npos) {
          partial = size;
          incomplete = at + size == bytes.size();
        }
      }
    }
    if (best > 0) {
      text += bytes.substr(at, best);
      at += best;
    } else {
      if (!incomplete || last) text += "\xEF\xBF\xBD";
      at += partial;
    }
  }
  return text;
}

Answer naive(const std::vector<Token>& tokens, const std::vector<std::string>& stops) {
  std::string bytes;
  for (std::size_t i = 0; i <= tokens.size(); ++i) {
    const bool last = i == tokens.size();
    if (!last && !tokenizer().is_special(tokens[i])) bytes += tokenizer().bytes(tokens[i]);
    const std::string text = naive_decode(bytes, last);
    std::size_t begin = std::string::npos;
    std::string winner;
    for (const std::string& stop : stops) {
      const std::size_t found = text.find(stop);
      if (found == std::string::npos) continue;
      if (found < begin || (found == begin && stop.size() > winner.size())) {
        begin = found;
        winner = stop;
      }
    }
    if (begin != std::string::npos) return {text.substr(0, begin), winner, {}};
    if (last) return {text, std::nullopt, {}};
  }
  return {};
}

TEST(StreamDecoder, AnEmojiAcrossTokensComesWhole) {
  //  f0 | 9f 98 80
  const Answer answer = stream({0, 8, 9, 10, 11, 1}, {});
  EXPECT_EQ(answer.deltas, (std::vector<std::string>{"a", "", "", "", "\xF0\x9F\x98\x80", "b", ""}));
  EXPECT_EQ(stream({15, 16}, {}).text, "\xF0\x9F\x98\x80");
}

TEST(StreamDecoder, AnIncompleteTailBecomesOneReplacementCharacter) {
  EXPECT_EQ(stream({0, 8, 9, 10}, {}).text, "a\xEF\xBF\xBD");
  EXPECT_EQ(stream({0, 12}, {}).text, "a\xEF\xBF\xBD");
}

TEST(StreamDecoder, GarbageBytesGiveReplacementsAtOnceAndDoNotStallTheStream) {
  const Answer answer = stream({13, 0, 10, 12, 0}, {});
  EXPECT_EQ(answer.deltas, (std::vector<std::string>{"\xEF\xBF\xBD", "a", "\xEF\xBF\xBD", "",
                                                     "\xEF\xBF\xBD"
                                                     "a",
                                                     ""}));
}

TEST(StreamDecoder, OnlyASuffixThatIsAProperPrefixOfAStopIsWithheld) {
  //  a b c D E F with stop "DEFa": held from D on, released when it can't become the stop any more
  const Answer answer = stream({0, 2, 3, 4, 5, 1}, {"DEFa"});
  EXPECT_EQ(answer.deltas, (std::vector<std::string>{"a", "c", "", "", "", "DEFb", ""}));
  EXPECT_EQ(answer.stop, std::nullopt);
}

TEST(StreamDecoder, AStopAcrossTokensNeverLeaksItsFirstPart) {
  const Answer answer = stream({0, 1, 2, 3, 4, 5}, {"DEF"});
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(answer.stop, "DEF");
  EXPECT_EQ(stream({0, 18}, {"DEF"}, true, true).text, "aDEF");  // keep_stop
}

TEST(StreamDecoder, FinishReleasesWhatWasHeldBack) { EXPECT_EQ(stream({0, 3, 4}, {"DEF"}).text, "aDE"); }

TEST(StreamDecoder, TheEarliestMatchWinsThenTheLongest) {
  EXPECT_EQ(stream({2, 18}, {"EF", "DE"}).stop, "DE");
  EXPECT_EQ(stream({2, 18}, {"D", "DEF", "DE"}).stop, "DEF");
  EXPECT_EQ(stream({3, 4, 5}, {"D", "DEF"}).stop, "D");    // complete before the longer one could be
  EXPECT_EQ(stream({18}, {"E", "DEF", "F"}).stop, "DEF");  // all complete in one token, whatever the list's order
  const Answer later = stream({3, 4, 5}, {"DEF", "E"});    // token by token the inner one is complete first
  EXPECT_EQ(later.stop, "E");
  EXPECT_EQ(later.text, "D");
}

TEST(StreamDecoder, SpecialTokensAreTextOnlyWhenAskedFor) {
  EXPECT_EQ(stream({0, kEnd, 1}, {}).text, "ab");
  EXPECT_EQ(stream({0, kEnd, 1}, {}, false).text, "a<|end|>b");
}

// Stops made of what the tokens spell, so that they match often: overlapping, nested, with characters cut across tokens.
rc::Gen<std::string> any_stop() {
  return rc::gen::map(rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
                          "a", "b", "ab", "D", "DEF", "E", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD", " "))),
                      [](const std::vector<std::string>& parts) {
                        std::string stop;
                        for (std::size_t i = 0; i < parts.size() && i < 4; ++i) stop += parts[i];
                        return stop;
                      });
}

TEST(StreamDecoder, EqualsTheNaiveDecodingOfTheWholeText) {
  const bool ok = rc::check("text and stop", [] {
    const auto tokens = *rc::gen::container<std::vector<Token>>(rc::gen::inRange<Token>(-1, kTokens + 1));
    const auto stops = *rc::gen::container<std::vector<std::string>>(any_stop());
    const Answer got = stream(tokens, stops), want = naive(tokens, stops);
    // A stop completed only by the replacement of an incomplete tail cuts the text but isn't reported: finish() is void.
    RC_ASSERT(got.text == want.text);
    RC_ASSERT(got.stop == want.stop ||
              (!got.stop && want.stop && want.stop->find("\xEF\xBF\xBD") != std::string::npos));
    RC_ASSERT(find_invalid_utf8(got.text) == std::string::npos);
    std::string so_far;
    for (const std::string& delta : got.deltas) {
      RC_ASSERT(find_invalid_utf8(delta) == std::string::npos);
      so_far += delta;
      RC_ASSERT(want.text.compare(0, so_far.size(), so_far) == 0);
    }
  });
  EXPECT_TRUE(ok);
}

TEST(StreamDecoder, HowBytesAreCutIntoTokensDoesNotChangeTheText) {
  const bool ok = rc::check("without stops", [] {
    const auto tokens = *rc::gen::container<std::vector<Token>>(rc::gen::inRange<Token>(0, kTokens));
    std::vector<Token> single;  // the same bytes, one token each
    for (const Token token : tokens) {
      if (tokenizer().is_special(token)) continue;
      for (const char byte : tokenizer().bytes(token)) single.push_back(*tokenizer().token_id(std::string(1, byte)));
    }
    RC_ASSERT(stream(tokens, {}).text == stream(single, {}).text);
  });
  EXPECT_TRUE(ok);
}

TEST(StreamDecoder, ALongStopThatAlmostMatchesIsNotScannedAnewWithEveryToken) {
  std::string stop(20'000, 'a');
  stop.push_back('b');
  const Answer answer = stream(std::vector<Token>(60'000, 0), {stop});
  EXPECT_EQ(answer.text, std::string(60'000, 'a'));
}

}  // namespace
}  // namespace levada::text
