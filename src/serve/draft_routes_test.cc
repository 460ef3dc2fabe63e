// The draft endpoints over real HTTP, before a DraftControl made of a list.
#include "serve/draft_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/chain_model_test.h"

namespace levada::serve {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

// Serves whatever it is told to load, but for paths that name their own failure.
class FakeDrafts final : public DraftControl {
 public:
  void load(DraftOrder order, Done done) override {
    if (order.path == "/missing") return done(not_found("there is no /missing/config.json", "path"));
    if (order.path == "/large") return done(payload_too_large("4 layers, there is room for 2", "path"));
    if (order.path == "/busy") return done(resource_exhausted("8 orders for drafts are waiting already"));
    report_.previous = report_.serving;
    DraftReport draft;
    draft.profile = {core::DraftVersion{++versions_}, order.name.value_or("folder"), 8};
    draft.path = order.path;
    draft.layers = 2;
    draft.counts = {10, 70, 25};
    report_.serving = draft;
    done(report_);
  }
  void unload(Done done) override {
    if (!report_.serving) return done(not_found("no draft is in service"));
    report_.previous = std::exchange(report_.serving, std::nullopt);
    done(report_);
  }
  void roll_back(Done done) override {
    std::swap(report_.serving, report_.previous);
    done(report_);
  }
  void list(Done done) override { done(report_); }

 private:
  DraftsReport report_{std::nullopt, std::nullopt, DraftRoomReport{2, 64, 128, 1000, 8}};
  std::uint32_t versions_ = 0;
};

class Drafts : public ::testing::Test {
 protected:
  Drafts() : site_({}, {}, &drafts_) { site_.start(); }
  Json ask(const std::string& method, const std::string& target, const std::string& body, int status) {
    http::Client client = site_.client();
    http::ClientRequest request;
    request.method = method;
    request.target = target;
    request.body = body;
    const auto response = client.request(request).value();
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body);
  }

  FakeDrafts drafts_;
  Site site_;
};

TEST_F(Drafts, EveryOrderAnswersWithTheStateItLeft) {
  EXPECT_EQ(ask("GET", "/drafts", "", 200),
            Json::parse(
                R"({"serving":null,"previous":null,"room":{"algorithm":"DFLASH","layers":2,"kv_width":64,"features":128,
                            "parameters":1000,"block_size":8}})"));
  const Json loaded = ask("POST", "/drafts", R"({"path":"/a","name":"first"})", 200);
  EXPECT_EQ(loaded["serving"], Json::parse(R"({"version":1,"name":"first","path":"/a","algorithm":"DFLASH",
      "block_size":8,"layers":2,"parameters":0,"bytes":0,"since":0,"speculation":{"steps":10,"drafts":70,"accepted":25,"accept_length":3.5,
      "accept_rate":0.35714285714285715}})"));
  EXPECT_EQ(ask("POST", "/drafts", R"({"path":"/b"})", 200)["previous"]["name"], "first");
  EXPECT_EQ(ask("POST", "/drafts/rollback", "", 200)["serving"]["version"], 1);
  const Json unloaded = ask("DELETE", "/drafts", "", 200);
  EXPECT_EQ(unloaded["serving"], nullptr);
  EXPECT_EQ(unloaded["previous"]["version"], 1);
  EXPECT_EQ(ask("DELETE", "/drafts", "", 404)["error"]["message"], "no draft is in service");
}

TEST_F(Drafts, ARefusalNamesTheFieldAndTheLimit) {
  const auto param = [](const Json& answer) { return answer["error"]["param"]; };
  EXPECT_EQ(param(ask("POST", "/drafts", R"({"path":"/missing"})", 404)), "path");
  const Json large = ask("POST", "/drafts", R"({"path":"/large"})", 413);
  EXPECT_EQ(param(large), "path");
  EXPECT_THAT(large["error"]["message"].get<std::string>(), HasSubstr("room for 2"));
  (void)ask("POST", "/drafts", R"({"path":"/busy"})", 429);
  EXPECT_EQ(param(ask("POST", "/drafts", R"({})", 400)), "path");
  EXPECT_EQ(param(ask("POST", "/drafts", R"({"path":7})", 400)), "path");
  EXPECT_EQ(param(ask("POST", "/drafts", R"({"path":"/a\u0000b"})", 400)), "path");
  EXPECT_EQ(param(ask("POST", "/drafts", R"({"path":"/a","name":""})", 400)), "name");
  EXPECT_EQ(param(ask("POST", "/drafts", R"({"path":")" + std::string(5000, 'x') + R"("})", 400)), "path");
  (void)ask("POST", "/drafts", "not JSON", 400);
  EXPECT_EQ(ask("GET", "/drafts", "", 200)["serving"], nullptr) << "none of them changed anything";
}

TEST(DraftsWithoutRoom, AreRefusedWithTheRemedy) {
  Site site;
  site.start();
  const auto refused = site.client().post("/drafts", R"({"path":"/a"})").value();
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("--speculative-draft-room"));
}

TEST(DraftsBehindKeys, WantTheAdministrators) {
  Options options;
  options.api_key = "user";
  options.admin_api_key = "admin";
  FakeDrafts drafts;
  Site site(options, {}, &drafts);
  site.start();
  http::Client client = site.client();
  for (const char* method : {"GET", "POST", "DELETE"}) {
    http::ClientRequest request;
    request.method = method;
    request.target = "/drafts";
    request.body = R"({"path":"/a"})";
    request.headers["Authorization"] = "Bearer user";
    EXPECT_EQ(client.request(request)->status, 401) << method;
    request.headers["Authorization"] = "Bearer admin";
    EXPECT_EQ(client.request(request)->status, 200) << method;
  }
}

}  // namespace
}  // namespace levada::serve
