// Leases and names on the store of the simulator (tests/simulation/etcd_store.h) in real time,
// whose calls can be made to fail.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/etcd.pb.h"
#include "ps/discovery/etcd_member.h"
#include "tests/simulation/etcd_store.h"

namespace millrace::ps {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using DirectoryClock = std::chrono::steady_clock;

Deadline in_time(milliseconds time) {
  return DirectoryClock::now() + time;
}

/// An etcd in this process.
class LocalEtcd {
 public:
  StatusOr<std::string> call(const EtcdRequest& request, int caller) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++calls_[request.method];
    if (failing_.contains(caller) || failing_methods_.contains(request.method))
      return Status(StatusCode::kDistributed, "cut off");
    return store_.carry_out(request.method, request.message, caller,
                            DirectoryClock::now().time_since_epoch().count());
  }
  int calls(const std::string& method) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_[method];
  }
  // Calls of a process fail, or those of a method.
  void cut_off(int caller, bool fails) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fails ? (void)failing_.insert(caller) : (void)failing_.erase(caller);
  }
  void refuse(const std::string& method, bool fails) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fails ? (void)failing_methods_.insert(method) : (void)failing_methods_.erase(method);
  }

 private:
  std::mutex mutex_;
  simulation::EtcdStore store_{1};
  std::map<std::string, int> calls_;
  std::set<int> failing_;
  std::set<std::string> failing_methods_;
};

class LocalMember final : public EtcdMember {
 public:
  LocalMember(LocalEtcd& etcd, int caller) : etcd_(etcd), caller_(caller) {}
  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }
  Status call(const EtcdRequest& request, Deadline /*deadline*/, std::string& response) override {
    MILLRACE_ASSIGN_OR_RETURN(response, etcd_.call(request, caller_));
    return Ok();
  }

 private:
  LocalEtcd& etcd_;
  int caller_;
  std::string endpoint_ = "local:1";
};

class EtcdDirectoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<Directory> directory(int process, int lease_seconds) {
    EtcdOptions options;
    options.job = "clicks";
    options.lease = std::chrono::seconds(lease_seconds);
    EtcdMembers members;
    members.push_back(std::make_unique<LocalMember>(etcd_, process));
    return std::move(make_etcd_directory(options, std::move(members))).value();
  }
  static std::string name_of(int process) { return "s:" + std::to_string(process); }
  LocalEtcd etcd_;
};

TEST_F(EtcdDirectoryTest, RenewsShortLeasesAndNotTooOften) {
  const auto one = directory(1, 1);
  const auto two = directory(2, 2);
  ASSERT_TRUE(one->announce("a:1", "h:1", 1, in_time(milliseconds(500))).ok());
  ASSERT_TRUE(two->announce("b:1", "h:2", 1, in_time(milliseconds(500))).ok());
  std::this_thread::sleep_for(milliseconds(2500));  // longer than a lease and the store's second
  EXPECT_EQ(one->list(in_time(milliseconds(500)))->size(), 2U);
  EXPECT_GE(etcd_.calls("Lease/LeaseKeepAlive"), 5);
  EXPECT_LE(etcd_.calls("Lease/LeaseKeepAlive"), 20);
  EXPECT_EQ(etcd_.calls("Lease/LeaseGrant"), 2);
}

TEST_F(EtcdDirectoryTest, AProcessThatIsCutOffDoesNotKnowWhetherItHasItsName) {
  constexpr int kProcesses = 5;
  std::vector<std::unique_ptr<Directory>> all;
  for (int i = 0; i < kProcesses; ++i) {
    all.push_back(directory(i, 1));
    ASSERT_TRUE(all.back()->announce(name_of(i), "h:1", 1, in_time(milliseconds(500))).ok());
  }
  for (int i = 0; i < kProcesses; ++i) etcd_.cut_off(i, true);
  std::this_thread::sleep_for(milliseconds(1050));
  const auto unknown = all[0]->still_has(name_of(0), in_time(milliseconds(50)));
  EXPECT_EQ(unknown.status().code(), StatusCode::kDistributed);
  EXPECT_THAT(unknown.status().to_string(), HasSubstr("cannot tell whether it still has the name"));
  // they wait until etcd responds, and has deleted the entries whose leases have ended
  for (int i = 0; i < kProcesses; ++i) etcd_.cut_off(i, false);
  for (int i = 0; i < kProcesses; ++i) {
    const auto again =
        all[static_cast<size_t>(i)]->still_has(name_of(i), in_time(milliseconds(5000)));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_TRUE(*again) << i;
  }
}

TEST_F(EtcdDirectoryTest, AProcessThatWasCutOffLosesItsNameToAnother) {
  const auto first = directory(1, 1);
  ASSERT_TRUE(first->announce("a:1", "h:1", 1, in_time(milliseconds(500))).ok());
  etcd_.cut_off(1, true);
  const auto second = directory(2, 1);
  EXPECT_EQ(*second->announce("a:1", "h:2", 1, in_time(milliseconds(5000))), 2U);
  EXPECT_FALSE(first->still_has("a:1", in_time(milliseconds(100))).ok());
  std::atomic<int> notified{0};
  first->watch("a:1", [&] { ++notified; });
  etcd_.cut_off(1, false);
  const auto lost = first->still_has("a:1", in_time(milliseconds(5000)));
  ASSERT_TRUE(lost.ok()) << lost.status().to_string();
  EXPECT_FALSE(*lost);
  while (notified == 0) std::this_thread::sleep_for(milliseconds(10));
  first->watch("a:1", [&] { ++notified; });  // at once
  EXPECT_EQ(notified, 2);
  EXPECT_TRUE(*second->still_has("a:1", in_time(milliseconds(500))));
}

// A process in reserve may have the parameters of an earlier step; but the same job may be begun on
// purpose.
TEST_F(EtcdDirectoryTest, WhoWaitsForANameDoesNotBeginAFinishedJobAgain) {
  auto first = directory(1, 1);
  ASSERT_TRUE(first->announce("a:1", "h:1", 1, in_time(milliseconds(500))).ok());
  const auto reserve = directory(2, 1);
  std::thread waits([&] {
    const auto term = reserve->announce("a:1", "h:2", 1, in_time(milliseconds(10'000)));
    EXPECT_THAT(term.status().to_string(), HasSubstr("served as 'a:1' and finished the job"));
  });
  std::this_thread::sleep_for(milliseconds(300));
  first->finish("a:1");
  first.reset();
  waits.join();
  const auto third = directory(3, 1);
  EXPECT_EQ(*third->announce("a:1", "h:3", 1, in_time(milliseconds(500))), 2U);
  EXPECT_TRUE(*third->still_has("a:1", in_time(milliseconds(500))));
  third->finish("a:1");
}

// A new lease says nothing about the name until that is registered under it.
TEST_F(EtcdDirectoryTest, ANewLeaseIsNoName) {
  const auto first = directory(1, 1);
  ASSERT_TRUE(first->announce("a:1", "h:1", 1, in_time(milliseconds(500))).ok());
  etcd_.refuse("KV/Txn", true);
  etcd_.cut_off(1, true);
  std::this_thread::sleep_for(milliseconds(2200));
  etcd_.cut_off(1, false);
  EXPECT_FALSE(first->still_has("a:1", in_time(milliseconds(400))).ok());
  EXPECT_GE(etcd_.calls("Lease/LeaseGrant"), 2);
  EXPECT_TRUE(first->list(in_time(milliseconds(500)))->empty());
  etcd_.refuse("KV/Txn", false);
  EXPECT_TRUE(*first->still_has("a:1", in_time(milliseconds(5000))));
  EXPECT_EQ(first->list(in_time(milliseconds(500)))->size(), 1U);
}

// The lease of a process that waits for a name ends meanwhile.
TEST_F(EtcdDirectoryTest, ANameIsRegisteredUnderAnotherLease) {
  auto first = directory(1, 60);
  ASSERT_TRUE(first->announce("a:1", "h:1", 1, in_time(milliseconds(500))).ok());
  const auto second = directory(2, 60);
  StatusOr<uint64_t> term = uint64_t{0};
  std::thread waits([&] { term = second->announce("a:1", "h:2", 1, in_time(milliseconds(5000))); });
  while (etcd_.calls("KV/Txn") < 2) std::this_thread::sleep_for(milliseconds(10));
  etcd::LeaseRevokeRequest end;
  end.set_id(simulation::EtcdStore::kFirstLease + 1);
  ASSERT_TRUE(etcd_.call({"Lease/LeaseRevoke", false, end.SerializeAsString()}, 0).ok());
  first.reset();
  waits.join();
  ASSERT_TRUE(term.ok()) << term.status().to_string();
  EXPECT_EQ(*term, 2U);
  EXPECT_TRUE(*second->still_has("a:1", in_time(milliseconds(500))));
}

TEST_F(EtcdDirectoryTest, RefusesWhatCannotBeUsed) {
  EXPECT_EQ(make_etcd_directory({}, {}).status().code(), StatusCode::kInvalidArgument);
  EtcdOptions options;
  options.lease = std::chrono::seconds(0);
  EtcdMembers members;
  members.push_back(std::make_unique<LocalMember>(etcd_, 1));
  EXPECT_THAT(make_etcd_directory(options, std::move(members)).status().message(),
              HasSubstr("expected a lease of at least 1 s"));
}

}  // namespace
}  // namespace millrace::ps
