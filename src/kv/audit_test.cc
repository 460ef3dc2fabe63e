#include "kv/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "kv/test_cache.h"

namespace levada::kv {
namespace {

using ::testing::HasSubstr;

TEST(Audit, AcceptsFreeLeasedAndAdoptedPages) {
  TestCache cache(16, 4);
  const auto inserted = cache.put(run(0, 20));
  const PageLease lease = *cache.pool.try_allocate(3);
  EXPECT_EQ(cache.audit_now(std::array{&lease}).to_string(), Status().to_string());
  EXPECT_EQ(cache.pool.free_pages() + cache.pool.leased_pages() + cache.tree.cached_pages(), 16);
}

TEST(Audit, NamesAPageThatIsLeasedButHeldByNoLeaseHandedIn) {
  TestCache cache(16, 4);
  const PageLease lease = *cache.pool.try_allocate(1);
  const Status status = cache.audit_now();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("page 0 is booked as leased but its owners say free"));
}

TEST(Audit, NamesAPageWithTwoOwners) {
  TestCache cache(16, 4);
  const PageLease lease = *cache.pool.try_allocate(1);
  const std::array twice = {&lease, &lease};
  EXPECT_THAT(cache.audit_now(twice).message(), HasSubstr("page 0 has two owners"));
}

TEST(Audit, NamesAnAdoptedPageThatTheTreeDoesNotHold) {
  TestCache cache(16, 4);
  PageLease lease = *cache.pool.try_allocate(1);
  const std::array page = {lease.pages()[0]};
  lease.adopt(0, 1);
  EXPECT_THAT(cache.audit_now().message(), HasSubstr("page 0 is booked as adopted but its owners say free"));
  cache.pool.release_adopted(page);
}

TEST(Audit, NamesATreePageThatWasNeverAdopted) {
  TestCache cache(16, 4);
  PageLease lease = *cache.pool.try_allocate(2);
  const Tokens tokens = run(0, 8);
  const auto inserted = cache.tree.insert(TokenKey(tokens, kDefaultNamespace), lease.pages());
  EXPECT_THAT(cache.audit_now(std::array{&std::as_const(lease)}).message(), HasSubstr("which it never adopted"));
  lease.adopt(0, 2);
  EXPECT_TRUE(cache.audit_now(std::array{&std::as_const(lease)}).ok());
}

}  // namespace
}  // namespace levada::kv
