// Stores in which ranks find each other: values that one rank sets are visible to the others, and
// connections of other programs are refused.

#include "executor/collective/store.h"

#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/collective/roll_call.h"
#include "executor/collective/sockets.h"
#include "tests/support/process.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Store> join(const std::string& endpoint, bool serve,
                            const std::string& job = "job") {
  auto store =
      open_tcp_store({.endpoint = endpoint, .serve = serve, .job = job, .join_timeout_ms = 5000});
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return store.ok() ? std::move(store).value() : nullptr;
}

void expect_store(Store& a, Store& b) {
  EXPECT_FALSE((*a.find("x/y")).has_value());
  EXPECT_THAT(a.get("x/y", 30).status().message(), HasSubstr("waited 30 ms for 'x/y'"));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ASSERT_TRUE(b.set("x/y", std::string("zero\0byte", 9)).ok());
  });
  EXPECT_EQ(*a.get("x/y", 5000), std::string("zero\0byte", 9));
  later.join();
  ASSERT_TRUE(a.set("x/y", "new").ok());
  EXPECT_EQ(**b.find("x/y"), "new");
}

TEST(Store, TcpGivesWhatOthersSet) {
  const std::string endpoint = millrace::spawn::free_endpoints(1);
  const auto server = join(endpoint, true);
  const auto client = join(endpoint, false);
  expect_store(*client, *server);
}

TEST(Store, FilesGiveWhatOthersSet) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("millrace_store_" + std::to_string(::getpid()));
  auto a = open_file_store(folder, "job");
  auto b = open_file_store(folder, "job");
  ASSERT_TRUE(a.ok() && b.ok());
  expect_store(**a, **b);
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(open_file_store("/proc/none", "job").ok());
  EXPECT_FALSE(open_file_store(folder, "../up").ok());
}

TEST(Store, StartsInAnyOrder) {
  const std::string endpoint = millrace::spawn::free_endpoints(1);
  std::unique_ptr<Store> server;
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    server = join(endpoint, true);
  });
  EXPECT_NE(join(endpoint, false), nullptr);
  late.join();
}

TEST(Store, RefusesOtherJobsAndStrangers) {
  const std::string endpoint = millrace::spawn::free_endpoints(1);
  const auto server = join(endpoint, true);
  const auto other =
      open_tcp_store({.endpoint = endpoint, .job = "other", .join_timeout_ms = 2000});
  EXPECT_THAT(other.status().message(), HasSubstr("this is job 'job', not 'other'"));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (const std::string& noise :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff'),
        std::string("mr-store-1"), "mr-store-2" + std::string(60, '\xff')}) {
    auto socket = connect_to(endpoint, deadline);
    ASSERT_TRUE(socket.ok());
    (void)write_bytes(*socket, noise, deadline);
    std::string answer;
    EXPECT_FALSE(read_bytes(*socket, answer, 1, deadline).ok());
  }
  const auto client = join(endpoint, false);
  EXPECT_TRUE(client->set("a", "b").ok());
  EXPECT_FALSE(client->set(std::string(600, 'k'), "b").ok());
}

// A process that claims the number of a connected rank, and hangs up, must not make it count as
// lost.
TEST(Store, ARankThatIsConnectedCannotBeClaimedByAnother) {
  const std::string endpoint = millrace::spawn::free_endpoints(1);
  const auto server = join(endpoint, true);
  const auto one = open_tcp_store({.endpoint = endpoint, .rank = 1, .job = "job"});
  ASSERT_TRUE(one.ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  {
    auto socket = connect_to(endpoint, deadline);
    ASSERT_TRUE(socket.ok());
    const std::string zeros(io::JobKey::kBytes, '\0');
    const std::string hello =
        std::string("mr-store-2\3\0\0\0\1\0\0\0", 18) + "12345678-" + zeros + "job";
    ASSERT_TRUE(write_bytes(*socket, hello, deadline).ok());
    std::string answer;
    ASSERT_TRUE(read_bytes(*socket, answer, 5, deadline).ok());
    EXPECT_EQ(answer[0], '2');
  }
  EXPECT_TRUE((*one)->set("a", "b").ok());
  EXPECT_FALSE((*server->find(Store::lost_key(1))).has_value());
}

TEST(Store, RequiresTheKeyOfTheJob) {
  const std::string endpoint = millrace::spawn::free_endpoints(1);
  const auto key = std::make_shared<const io::JobKey>("0123456789abcdef");
  const auto other = std::make_shared<const io::JobKey>("0123456789abcdeX");
  const auto open = [&](std::shared_ptr<const io::JobKey> own, bool serve) {
    return open_tcp_store({.endpoint = endpoint,
                           .serve = serve,
                           .job = "job",
                           .key = std::move(own),
                           .join_timeout_ms = 5000});
  };
  {
    const auto server = open(key, true);
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    const auto client = open(key, false);
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    EXPECT_TRUE((*client)->set("a", "b").ok());
    EXPECT_THAT(open(nullptr, false).status().message(), HasSubstr("requires the key of the job"));
    EXPECT_THAT(open(other, false).status().message(), HasSubstr("does not have the key"));
    EXPECT_EQ(**(*server)->find("a"), "b");
  }
  const auto open_store = open(nullptr, true);
  ASSERT_TRUE(open_store.ok());
  EXPECT_THAT(open(key, false).status().message(), HasSubstr("the store has none"));
}

// 65,536 values of 1 MiB would be 64 GiB.
TEST(Store, HoldsALimitedNumberOfBytes) {
  const std::string endpoint = millrace::spawn::free_endpoints(1);
  const auto server = join(endpoint, true);
  const std::string value(Store::kMostValueBytes, 'x');
  Status status;
  int count = 0;
  for (; count < 300 && status.ok(); ++count)
    status = server->set("k" + std::to_string(count % 256), value);
  EXPECT_EQ(count, 256) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("the store is full"));
}

TEST(Store, SaysThatNobodyServes) {
  const std::string endpoint = millrace::spawn::free_endpoints(1);
  const auto store = open_tcp_store({.endpoint = endpoint, .join_timeout_ms = 100});
  EXPECT_EQ(store.status().code(), StatusCode::kDistributed);
  EXPECT_THAT(store.status().message(), HasSubstr("cannot connect to " + endpoint));
  EXPECT_FALSE(open_tcp_store({.endpoint = "nowhere", .serve = true}).ok());
  EXPECT_FALSE(open_tcp_store({.endpoint = "host:70000"}).ok());
}

TEST(RollCall, NamesWhoDoesNotAnswer) {
  const std::string endpoint = millrace::spawn::free_endpoints(1);
  auto zero = join(endpoint, true);
  const auto two = join(endpoint, false);
  const Status why(StatusCode::kDistributed, "it broke");
  std::thread other([&] { (void)call_roll(*two, "g", {0, 1, 2}, 2, 300, why); });
  const Status status = call_roll(*zero, "g", {0, 1, 2}, 0, 300, why);
  other.join();
  EXPECT_THAT(status.message(), HasSubstr("lost rank 1"));
  EXPECT_THAT(status.notes(), ::testing::Contains("it broke"));
  zero.reset();
  EXPECT_THAT(call_roll(*two, "h", {0, 1, 2}, 2, 300, why).message(), HasSubstr("lost rank 0"));
}

// Rank 0 is the first to detect that rank 1 is gone, and exits; ranks that detect it later must not
// report rank 0 as the cause.
TEST(RollCall, TheStoreStaysUntilAllHaveHeard) {
  const std::string endpoint = millrace::spawn::free_endpoints(1);
  const auto open = [&](int rank) {
    auto store =
        open_tcp_store({.endpoint = endpoint, .rank = rank, .serve = rank == 0, .job = "job"});
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return std::move(store).value();
  };
  auto zero = open(0);
  auto one = open(1);
  const auto two = open(2);
  one.reset();
  const Status why(StatusCode::kDistributed, "it broke");
  constexpr int64_t kWaitMs = 20'000;
  const auto begin = std::chrono::steady_clock::now();
  std::thread first([&] {
    EXPECT_THAT(call_roll(*zero, "g", {0, 1, 2}, 0, kWaitMs, why).message(),
                HasSubstr("lost rank 1"));
    zero.reset();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_THAT(call_roll(*two, "g", {0, 1, 2}, 2, kWaitMs, why).message(), HasSubstr("lost rank 1"));
  first.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(kWaitMs / 2));
}

}  // namespace
}  // namespace millrace::executor
