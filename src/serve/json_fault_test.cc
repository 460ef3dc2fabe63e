// The place of a fault in a body, whatever stands around it.
#include "serve/json_fault.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <random>
#include <string>

namespace levada::serve {
namespace {

TEST(JsonFault, TheFirstFaultInReadingOrderIsNamedByItsPath) {
  const struct {
    const char *body, *path;
  } lines[] = {
      {R"({"a":{"b":[1,{"c":1e400}]}})", "a.b[1].c"},
      {R"([[1],[2,3,"\ud800"]])", "[1][2]"},
      {R"({"a":"}]\"","b":99999999999999999999,"c":1e400})", "b"},
      {R"({"a":[{},[],{"x":1},-]})", "a[3]"},
      {R"(1e400)", ""},
  };
  for (const auto& line : lines) {
    const Status fault = find_json_fault(line.body, 8);
    EXPECT_FALSE(fault.ok()) << line.body;
    EXPECT_EQ(fault.field(), line.path) << line.body;
  }
}

TEST(JsonFault, ALongKeyIsCut) {
  const Status fault = find_json_fault("{\"" + std::string(100'000, 'k') + "\":1e400}", 8);
  EXPECT_LT(fault.field().size(), 100u);
}

TEST(JsonFault, ABrokenStructureHasNoPlaceButNeverEndsTheProcess) {
  for (const char* body :
       {"", "{", "]", "}}}}", "{\"a", "{\"a\\", "{\"a\":\"\\u12\"", ",,,,", ":", "{,\"a\":1}", "\""}) {
    (void)find_json_fault(body, 8);
  }
  EXPECT_TRUE(find_json_fault(R"({"a" 1})", 8).ok());
}

// What simdjson accepts holds no fault, so that a fault is never an invention.
TEST(JsonFault, WellFormedBodiesHaveNone) {
  const std::string seeds[] = {
      R"({"a":[0,-0,1.5,-1.5e-3,1E5,9223372036854775807,18446744073709551615,-9223372036854775808]})",
      R"({"k\u00e9":"\ud83d\ude00\"\\\/\b\f\n\r\t","b":[true,false,null,{}],"c":[[],[[]]]})"};
  std::mt19937 random(3);
  simdjson::dom::parser parser;
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string body = seeds[round % 2];
    for (int change = 0; change < round % 3; ++change) {
      body[random() % body.size()] = "\"[]{},:0123456789-eE.\\ud8 "[random() % 26];
    }
    simdjson::dom::element root;
    if (parser.parse(body).get(root) != simdjson::SUCCESS) continue;
    ++accepted;
    const Status fault = find_json_fault(body, 64);
    const bool only_halves = fault.ok() || fault.message().find("surrogate") != std::string::npos;
    EXPECT_TRUE(only_halves) << body << fault.to_string();
  }
  EXPECT_GT(accepted, 7000);
}

}  // namespace
}  // namespace levada::serve
