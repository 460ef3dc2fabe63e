#include "store/endpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "store/test_store.h"

namespace levada::store {
namespace {

TEST(Endpoint, UrlsOfBothKindsAreReadAndWrittenBack) {
  for (const char* url : {"tcp://127.0.0.1:8000", "tcp://localhost:0", "tcp://[::1]:65535", "shm:///run/a.sock"})
    EXPECT_EQ(parse_endpoint(url)->url(), url);
  EXPECT_EQ(parse_endpoint("tcp://[::1]:7")->host, "::1");
}

TEST(Endpoint, EverythingElseIsRefusedByName) {
  for (const char* url :
       {"", "tcp://", "tcp://host", "tcp://host:", "tcp://host:x", "tcp://host:65536", "tcp://host:-1", "tcp://:80",
        "tcp://host:80 ", "shm://relative", "shm://", "http://host:80", "host:80"}) {
    const Status status = parse_endpoint(url).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << url;
    EXPECT_EQ(status.field(), "store_url");
  }
}

TEST(Endpoint, NobodyThereIsUnavailableAndNamesTheUrl) {
  TemporaryFolder folder;
  for (const std::string& url : {std::string("tcp://127.0.0.1:1"), "shm://" + (folder.path() / "none").string()}) {
    const Status status = connect_to(*parse_endpoint(url), 1'000'000).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find(url), std::string::npos) << status.message();
  }
  const std::string long_path = "shm:///" + std::string(200, 'x');
  EXPECT_EQ(connect_to(*parse_endpoint(long_path), 1'000'000).status().code(), StatusCode::kInvalidArgument);
}

TEST(Endpoint, ASocketFileIsReplacedOnlyIfNobodyListensAtIt) {
  TemporaryFolder folder;
  const Endpoint endpoint = *parse_endpoint("shm://" + (folder.path() / "s").string());
  auto first = listen_at(endpoint);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(listen_at(endpoint).status().code(), StatusCode::kUnavailable) << "somebody is there";
  first->reset();  // as a killed server leaves it
  EXPECT_TRUE(std::filesystem::exists(endpoint.path));
  EXPECT_TRUE(listen_at(endpoint).ok());
  EXPECT_EQ(std::filesystem::status(endpoint.path).permissions() & std::filesystem::perms::all,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const Endpoint file = *parse_endpoint("shm://" + (folder.path() / "file").string());
  std::fclose(std::fopen(file.path.c_str(), "w"));
  EXPECT_FALSE(listen_at(file).ok());
  EXPECT_TRUE(std::filesystem::exists(file.path)) << "a file of somebody's is not ours to remove";
}

}  // namespace
}  // namespace levada::store
