// Entries in a real etcd, started for the test. Skipped if etcd is not installed.

#include "ps/discovery/etcd.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fleet/launch/free_ports.h"

namespace millrace::ps {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

Deadline in_etcd(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

int free_port() {
  const StatusOr<std::vector<int>> ports = fleet::free_ports(1);
  return ports.ok() ? ports->front() : 0;
}

class EtcdTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/usr/bin/etcd")) GTEST_SKIP() << "there is no /usr/bin/etcd";
    // in memory if possible: etcd waits for its disk before every response
    const std::string root = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : ::testing::TempDir();
    folder_ = root + fmt::format("millrace_etcd_{}", ::getpid());
    port_ = free_port();
    start();
  }
  void TearDown() override {
    stop(SIGKILL);
    std::filesystem::remove_all(folder_);
  }

  void start() {
    const std::string peer = fmt::format("http://127.0.0.1:{}", free_port());
    const std::string client = fmt::format("http://{}", endpoint());
    const std::array<std::string, 13> words{"etcd",
                                            "--data-dir",
                                            folder_,
                                            "--listen-client-urls",
                                            client,
                                            "--advertise-client-urls",
                                            client,
                                            "--listen-peer-urls",
                                            peer,
                                            "--initial-advertise-peer-urls",
                                            peer,
                                            "--initial-cluster",
                                            "default=" + peer};
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    ASSERT_EQ(posix_spawn(&etcd_, "/usr/bin/etcd", &actions, nullptr, arguments.data(), environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
  }
  void stop(int signal) {
    if (etcd_ <= 0) return;
    ::kill(etcd_, signal);
    ::waitpid(etcd_, nullptr, 0);
    etcd_ = 0;
  }

  [[nodiscard]] std::string endpoint() const { return fmt::format("127.0.0.1:{}", port_); }
  std::unique_ptr<Directory> directory(const std::string& job = "clicks",
                                       std::vector<std::string> members = {}) {
    EtcdOptions options;
    options.endpoints = std::move(members);
    options.endpoints.push_back(endpoint());
    options.job = job;
    options.lease = seconds(2);
    auto made = make_etcd_directory(options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(made).value();
  }

  std::string folder_;
  int port_ = 0;
  pid_t etcd_ = 0;
};

TEST_F(EtcdTest, FindsWhatWasAnnouncedUntilItsOwnerEnds) {
  auto server = directory();
  const auto announced = server->announce("a:1", "127.0.0.1:77", 1, in_etcd(seconds(20)));
  ASSERT_TRUE(announced.ok()) << announced.status().to_string();
  ASSERT_TRUE(server->announce("b:1", "127.0.0.1:78", 1, in_etcd(seconds(5))).ok());
  auto trainer = directory();
  const auto found = trainer->find("a:1", in_etcd(seconds(5)));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(**found, "127.0.0.1:77");
  EXPECT_FALSE(trainer->find("c:1", in_etcd(seconds(5)))->has_value());
  EXPECT_FALSE(directory("views")->find("a:1", in_etcd(seconds(5)))->has_value());
  const auto all = trainer->list(in_etcd(seconds(5)));
  ASSERT_EQ(all->size(), 2);
  EXPECT_EQ(all->at(1).name, "b:1");
  EXPECT_EQ(all->at(1).address, "127.0.0.1:78");
  // longer than a lease, which is kept alive
  std::this_thread::sleep_for(seconds(5));
  EXPECT_TRUE(trainer->find("a:1", in_etcd(seconds(5)))->has_value());
  server.reset();
  EXPECT_FALSE(trainer->find("a:1", in_etcd(seconds(5)))->has_value());
}

TEST_F(EtcdTest, ANameHasOneOwner) {
  auto first = directory();
  ASSERT_TRUE(first->announce("a:1", "127.0.0.1:77", 1, in_etcd(seconds(20))).ok());
  auto second = directory();
  const Status refused = second->announce("a:1", "127.0.0.1:78", 1, in_etcd(seconds(1))).status();
  EXPECT_EQ(refused.code(), StatusCode::kDistributed);
  EXPECT_THAT(refused.to_string(), HasSubstr("'a:1' is already served at 127.0.0.1:77"));
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    first.reset();
  });
  EXPECT_TRUE(second->announce("a:1", "127.0.0.1:78", 1, in_etcd(seconds(10))).ok());
  ends.join();
  EXPECT_EQ(**second->find("a:1", in_etcd(seconds(5))), "127.0.0.1:78");
}

TEST_F(EtcdTest, EachOwnerOfANameHasAHigherTerm) {
  auto first = directory();
  const auto one = first->announce("a:1", "127.0.0.1:77", 1, in_etcd(seconds(20)));
  ASSERT_TRUE(one.ok()) << one.status().to_string();
  EXPECT_EQ(*one, 1U);
  EXPECT_EQ(*first->announce("b:1", "127.0.0.1:78", 5, in_etcd(seconds(5))), 5U);
  EXPECT_TRUE(*first->still_has("a:1", in_etcd(seconds(5))));
  EXPECT_FALSE(*first->still_has("c:1", in_etcd(seconds(5))));
  first.reset();
  auto second = directory();
  EXPECT_EQ(*second->announce("a:1", "127.0.0.1:79", 1, in_etcd(seconds(10))), 2U);
  EXPECT_EQ(*second->announce("b:1", "127.0.0.1:80", 1, in_etcd(seconds(10))), 6U);
  // terms are no addresses
  EXPECT_EQ(second->list(in_etcd(seconds(5)))->size(), 2U);
}

TEST_F(EtcdTest, EntersAgainWhatAnEmptyEtcdHasLost) {
  auto server = directory();
  ASSERT_TRUE(server->announce("a:1", "127.0.0.1:77", 1, in_etcd(seconds(20))).ok());
  stop(SIGKILL);
  std::filesystem::remove_all(folder_);
  start();
  auto trainer = directory();
  const Deadline limit = in_etcd(seconds(30));
  bool found = false;
  while (!found && std::chrono::steady_clock::now() < limit) {
    const auto answer = trainer->find("a:1", limit);
    found = answer.ok() && answer->has_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(found);
}

TEST_F(EtcdTest, PassesOverMembersThatDoNotAnswer) {
  auto server = directory("clicks", {fmt::format("127.0.0.1:{}", free_port())});
  const auto announced = server->announce("a:1", "127.0.0.1:77", 1, in_etcd(seconds(20)));
  EXPECT_TRUE(announced.ok()) << announced.status().to_string();
  stop(SIGKILL);
  const auto lost = server->find("a:1", in_etcd(seconds(1)));
  EXPECT_EQ(lost.status().code(), StatusCode::kDistributed);
  EXPECT_THAT(lost.status().to_string(), HasSubstr(endpoint()));
}

TEST(Etcd, RefusesWhatCannotBeUsed) {
  EXPECT_EQ(make_etcd_directory({}).status().code(), StatusCode::kInvalidArgument);
  EtcdOptions options;
  options.endpoints = {"nowhere"};
  EXPECT_EQ(make_etcd_directory(options).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::ps
