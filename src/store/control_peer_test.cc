// N8 to N10 of the behaviour spec, without sockets: what a peer of the control channel may say and what follows.
#include "store/control_peer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "store/test_store.h"

namespace levada::store {
namespace {

constexpr char kHello[] = R"({"hello":{"token":"correct horse","run":"r"}})"
                          "\n";

class ControlPeerTest : public ::testing::Test {
 protected:
  void put(std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) ASSERT_TRUE(arena_->put_from(key, pattern(100)).ok());
  }
  std::uint64_t objects() { return arena_->stats().objects; }

  SystemClock clock_;
  std::unique_ptr<Arena> arena_ = make_arena(clock_, 1 << 20);
  ControlTerms terms_;
  ControlStats stats_;
  ControlPeer peer_{*arena_, terms_, stats_};
};

TEST_F(ControlPeerTest, N8ALineIsAListOfKeysAndIsNotAnswered) {
  put({"s/r:a/g1/x", "s/r:b/g1/x", "kept"});
  EXPECT_TRUE(peer_.take("[\"s/r:a/g1/x\", \"s/r:b/g1/x\"]\n"));
  EXPECT_EQ(objects(), 1u);
  EXPECT_TRUE(peer_.answers().empty());
  EXPECT_EQ(stats_.freed.load(), 2u);
}

TEST_F(ControlPeerTest, Fault30ManyLinesInOneReadEmptyOnesAndCarriageReturns) {
  put({"a", "b", "c"});
  EXPECT_TRUE(peer_.take("\n[\"a\"]\r\n\r\n  \n[\"b\",\"c\"]\n[]\n"));
  EXPECT_EQ(objects(), 0u);
  EXPECT_EQ(stats_.bad_lines.load(), 0u);
}

TEST_F(ControlPeerTest, Fault31AKeyTwiceOrUnknownIsIgnoredAndCounted) {
  put({"a"});
  EXPECT_TRUE(peer_.take("[\"a\",\"a\",\"never\"]\n[\"a\"]\n"));
  EXPECT_EQ(stats_.freed.load(), 1u);
  EXPECT_EQ(arena_->stats().free_unknown, 3u);
}

TEST_F(ControlPeerTest, Fault32AnUnfinishedLineFreesNothing) {
  put({"a", "b"});
  EXPECT_TRUE(peer_.take("[\"a\"]\n[\"b\"]"));
  EXPECT_EQ(objects(), 1u);
  EXPECT_TRUE(peer_.has_partial_line());
}

TEST_F(ControlPeerTest, Fault33WhatIsNoListOfKeysEndsTheConnectionAfterTheGoodLines) {
  for (const std::string bad : {"garbage", "\xff\xfe", "{}", "7", "\"a\"", "[1]", "[\"b\",null]", "[[\"b\"]]", "[\"b\"",
                                "{\"hello\":7}", "[\"b\"] []"}) {
    SCOPED_TRACE(bad);
    ControlPeer peer(*arena_, terms_, stats_);
    const std::uint64_t counted = stats_.bad_lines.load();
    put({"a", "b"});
    EXPECT_FALSE(peer.take("[\"a\"]\n" + bad + "\n[\"b\"]\n"));
    EXPECT_EQ(stats_.bad_lines.load(), counted + 1);
    EXPECT_FALSE(arena_->find("a").has_value());
    EXPECT_TRUE(arena_->find("b").has_value()) << "nothing after the fault is heard";
    arena_->remove("b");
  }
}

TEST_F(ControlPeerTest, Fault33ALineHasALimitHoweverItComes) {
  terms_.max_line_bytes = 20;
  const std::string fits = "[\"1234567890123456\"]", longer = "[\"12345678901234567\"]";
  ASSERT_EQ(fits.size(), 20u);
  EXPECT_TRUE(peer_.take(fits + "\n"));
  ControlPeer whole(*arena_, terms_, stats_), in_pieces(*arena_, terms_, stats_);
  EXPECT_FALSE(whole.take(longer + "\n"));
  EXPECT_TRUE(in_pieces.take(longer.substr(0, 12)));
  EXPECT_FALSE(in_pieces.take(longer.substr(12))) << "before the line has ended";
  EXPECT_EQ(stats_.bad_lines.load(), 2u);
}

TEST_F(ControlPeerTest, Fault33ALineOfBracketsIsAnErrorAndNoCrash) {
  EXPECT_FALSE(peer_.take(std::string(1 << 20, '[') + "\n"));
  ControlPeer closed(*arena_, terms_, stats_);
  EXPECT_FALSE(closed.take(std::string(500'000, '[') + std::string(500'000, ']') + "\n"));
  EXPECT_EQ(stats_.bad_lines.load(), 2u);
}

TEST_F(ControlPeerTest, N10AGreetedPeerIsAnsweredALinePerList) {
  put({"a", "b", "held"});
  const auto view = arena_->view("held");
  EXPECT_TRUE(peer_.take(kHello));
  EXPECT_TRUE(peer_.answers().empty()) << "lists alone are answered";
  EXPECT_TRUE(peer_.take("[\"a\",\"never\",\"b\"]\n[]\n[\"held\"]\n"));
  EXPECT_EQ(peer_.answers(),
            "{\"freed\":[\"a\",\"b\"],\"unknown\":[\"never\"]}\n"
            "{\"freed\":[],\"unknown\":[]}\n"
            "{\"freed\":[],\"unknown\":[],\"still_read\":[\"held\"]}\n");
  EXPECT_EQ(peer_.run(), "r");
}

TEST_F(ControlPeerTest, N10AWrongTokenEndsTheConnection) {
  terms_.token = kToken;
  put({"a"});
  EXPECT_FALSE(peer_.take("{\"hello\":{\"token\":\"wrong\"}}\n[\"a\"]\n"));
  EXPECT_EQ(objects(), 1u);
  EXPECT_EQ(stats_.bad_tokens.load(), 1u);
  EXPECT_EQ(stats_.bad_lines.load(), 0u);
}

TEST_F(ControlPeerTest, N10WithATokenOnlyAGreetedPeerFreesUnlessPlainOnesMay) {
  terms_.token = kToken;
  put({"a"});
  EXPECT_FALSE(peer_.take("[\"a\"]\n"));
  EXPECT_EQ(stats_.bad_tokens.load(), 1u);
  ControlPeer greeted(*arena_, terms_, stats_);
  EXPECT_TRUE(greeted.take(std::string(kHello) + "[\"a\"]\n"));
  EXPECT_EQ(objects(), 0u);
  terms_.plain = true;
  put({"a"});
  ControlPeer plain(*arena_, terms_, stats_);
  EXPECT_TRUE(plain.take("[\"a\"]\n"));
  EXPECT_EQ(objects(), 0u);
}

TEST_F(ControlPeerTest, N10AHelloComesFirstOrNotAtAll) {
  EXPECT_FALSE(peer_.take("[]\n" + std::string(kHello)));
  ControlPeer twice(*arena_, terms_, stats_);
  EXPECT_FALSE(twice.take(std::string(kHello) + kHello));
  EXPECT_EQ(stats_.bad_lines.load(), 2u);
}

TEST_F(ControlPeerTest, N20Fault3KeysOfAnotherIncarnationAreUnknownEvenIfAnObjectHasThatName) {
  put({"a"});
  EXPECT_TRUE(peer_.take("{\"hello\":{\"incarnation\":\"00000000000000ff\"}}\n[\"a\"]\n"));
  EXPECT_EQ(objects(), 1u);
  EXPECT_TRUE(peer_.answers().starts_with("{\"freed\":[],\"unknown\":[\"a\"],\"incarnation\":\"")) << peer_.answers();
  ControlPeer same(*arena_, terms_, stats_);
  EXPECT_TRUE(same.take("{\"hello\":{\"incarnation\":" + std::to_string(arena_->incarnation()) + "}}\n[\"a\"]\n"));
  EXPECT_EQ(objects(), 0u);
}

// Invariant 24, and the gate of 9.4: a free line from upstream's client split at every byte.
TEST_F(ControlPeerTest, I24HowTheBytesAreCutChangesNothing) {
  const std::string stream = std::string(kHello) + "[\"a\"]\r\n\n[\"b\",\"\\u00e9\",\"never\"]\n{bad\n[\"c\"]\n";
  std::string whole;
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    put({"a", "b", "\xc3\xa9", "c"});
    ControlPeer peer(*arena_, terms_, stats_);
    const bool good = peer.take(stream.substr(0, cut)) && peer.take(stream.substr(cut));
    EXPECT_FALSE(good) << cut;
    if (cut == 0) whole = peer.answers();
    EXPECT_EQ(peer.answers(), whole) << cut;
    EXPECT_EQ(objects(), 1u) << cut;
    arena_->remove("c");
  }
  EXPECT_EQ(whole, "{\"freed\":[\"a\"],\"unknown\":[]}\n{\"freed\":[\"b\",\"\xc3\xa9\"],\"unknown\":[\"never\"]}\n");
}

RC_GTEST_PROP(ControlPeerRandom, I24AnyBytesInAnyPiecesNeitherCrashNorDiffer,
              (const std::vector<std::string>& pieces)) {
  SystemClock clock;
  const auto arena = make_arena(clock, 1 << 16);
  const ControlTerms terms{.max_line_bytes = 64};
  ControlStats stats;
  const auto feed = [&](const std::vector<std::string>& parts) {
    ControlPeer peer(*arena, terms, stats);
    bool good = true;
    for (const std::string& part : parts) good = good && peer.take(part);
    return std::pair(good, peer.answers());
  };
  std::string whole;
  for (const std::string& piece : pieces) whole += piece;
  RC_ASSERT(feed(pieces) == feed({whole}));
}

}  // namespace
}  // namespace levada::store
