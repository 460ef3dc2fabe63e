#include "up/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace levada::up {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Not;

RunState half_way() {
  RunState state("demo", 48, {.max_live_refs = 48, .max_live_bytes = 1 << 30});
  state.phase = "training";
  state.add_role("server-0", recipe::RoleKind::kService);
  state.add_trainer("b4", 24);
  state.set_role("server-0", "ready");
  SnapshotEvent snapshot;
  snapshot.total_samples = 48;
  snapshot.counters = {{"capture_count", 30}, {"recapture_count", 6}, {"live_refs", 11}, {"live_bytes", 2'500'000}};
  snapshot.consumers = {{"b4", "ready", "", 24, 12, 4}};
  state.apply("producer", snapshot);
  state.apply("b4", StepEvent{"b4", 12, 24, 3.5, 1.25, 1e-3});
  return state;
}

// What a view printed to a file.
std::string printed(auto use) {
  std::FILE* const file = std::tmpfile();
  use(file);
  std::rewind(file);
  std::string text(100'000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(View, ThePictureShowsCapturesAndTrainersAsBars) {
  const std::vector<std::string> lines = picture(half_way(), 120);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "training: server-0 ready");
  EXPECT_EQ(lines[1],
            "captures [" + std::string(15, '#') + std::string(15, '.') + "] 24/48 + 6 again  live 11/48 refs 2.5 MB");
  EXPECT_THAT(lines[2], HasSubstr("step 12/24 cursor 24/48 loss 3.500 accept 1.25 lag 4 ready"));
}

TEST(View, NoLineIsWiderThanTheTerminal) {
  for (const int columns : {20, 40, 79, 200}) {
    for (const std::string& line : picture(half_way(), columns)) EXPECT_LE(line.size(), std::size_t(columns));
  }
}

TEST(View, WhatRolesSayCannotDriveTheTerminal) {
  EXPECT_EQ(shown("a\033[2Jb\nc\x7F", 80), "a?[2Jb?c?");
  EXPECT_EQ(shown("grüße", 3), "grü");
  RunState state = half_way();
  state.apply("b4", StateEvent{"\033[31mred"});
  EXPECT_THAT(picture(state, 120), Each(Not(HasSubstr("\033"))));
}

TEST(View, PlainLinesComeWhenSomethingChangedAndNotTooOften) {
  const std::string text = printed([](std::FILE* file) {
    const auto view = make_plain_view(file, 2);
    RunState state = half_way();
    view->show(state);
    view->show(state);  // nothing new
    state.apply("b4", StepEvent{"b4", 13, 26, 3, 1, 1e-3});
    state.seconds = 1;
    view->show(state);  // too soon
    state.seconds = 2.5;
    view->show(state);
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, HasSubstr("b4 step 12/24"));
  EXPECT_THAT(text, HasSubstr("b4 step 13/24"));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
}

TEST(View, TheTerminalRedrawsInPlaceAndKeepsWhatWasSaid) {
  const std::string text = printed([](std::FILE* file) {
    const auto view = make_terminal_view(file, 100);
    RunState state = half_way();
    view->show(state);
    view->say("server-0 is ready");
    view->finish(state);
    view->say("after");
  });
  // Three lines drawn, erased for the message, drawn again; nothing is erased after the end.
  EXPECT_THAT(text, HasSubstr("\033[3A\033[Jserver-0 is ready\n"));
  EXPECT_THAT(text, testing::EndsWith("ready\nafter\n"));
}

}  // namespace
}  // namespace levada::up
