#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/discovery/discovering_transport.h"
#include "ps/transport/tcp.h"

namespace millrace::ps {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class FakeDirectory final : public Directory {
 public:
  StatusOr<uint64_t> announce(const std::string& name, const std::string& address, uint64_t least,
                              Deadline) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_[name] = address;
    uint64_t& term = terms_[name];
    term = std::max(term + 1, least);
    return term;
  }
  StatusOr<bool> still_has(const std::string& name, Deadline deadline) override {
    if (!knows_) {
      std::this_thread::sleep_until(deadline);
      return Status(StatusCode::kDistributed, "the directory does not respond");
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    return !taken_.contains(name);
  }
  // Whether it responds.
  void respond(bool does) { knows_ = does; }
  void watch(const std::string& name, std::function<void()> lost) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    watchers_[name] = std::move(lost);
  }
  void finish(const std::string& name) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    finished_.insert(name);
  }
  [[nodiscard]] bool has_finished(const std::string& name) const {
    return finished_.contains(name);
  }
  // As if another process had the name, and this one knew it.
  void take_away(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken_.insert(name);
  }
  void notice(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (watchers_[name]) watchers_[name]();
  }
  // Whether it says where servers are.
  void tell(bool does) { tells_ = does; }
  StatusOr<std::optional<std::string>> find(const std::string& name, Deadline deadline) override {
    if (!tells_) {
      std::this_thread::sleep_until(deadline);
      return Status(StatusCode::kDistributed, "the directory does not respond");
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entries_.find(name);
    if (found == entries_.end()) return std::optional<std::string>();
    return std::optional<std::string>(found->second);
  }
  StatusOr<std::vector<Entry>> list(Deadline) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Entry> entries;
    for (const auto& [name, address] : entries_) entries.push_back({name, address});
    return entries;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> entries_;
  std::map<std::string, uint64_t> terms_;
  std::set<std::string> taken_;
  std::set<std::string> finished_;
  std::map<std::string, std::function<void()>> watchers_;
  std::atomic<bool> knows_{true};
  std::atomic<bool> tells_{true};
};

class Says final : public Handler {
 public:
  explicit Says(std::string text) : text_(std::move(text)) {}
  Status handle(const Request& /*request*/, Deadline /*deadline*/, ReplySink& reply) override {
    reply.set_text(text_);
    return Ok();
  }
  void heard(const Request& /*envelope*/) override { ++heard_; }
  [[nodiscard]] int times_heard() const { return heard_; }
  [[nodiscard]] uint64_t term() const override { return term_; }
  Status begin_term(uint64_t term) override {
    term_ = term;
    return Ok();
  }
  void end(Status why) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = std::move(why);
  }
  [[nodiscard]] bool has_finished() const override { return finished_; }
  void finish() { finished_ = true; }
  Status ended() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ended_;
  }

 private:
  std::string text_;
  std::atomic<uint64_t> term_{3};
  std::atomic<bool> finished_{false};
  std::atomic<int> heard_{0};
  std::mutex mutex_;
  Status ended_;
};

class DiscoveringTransportTest : public ::testing::Test {
 protected:
  std::shared_ptr<Transport> transport(const ServingPlace& place,
                                       milliseconds patience = milliseconds(10000)) {
    GrpcOptions options;
    options.reconnect_timeout = milliseconds(300);
    options.short_first_connect = true;
    auto tcp = make_tcp_transport(options);
    EXPECT_TRUE(tcp.ok()) << tcp.status().to_string();
    return make_discovering_transport(std::move(tcp).value(), directory_, {place, patience});
  }
  static Status ask(Channel& channel, std::string& text, milliseconds time = milliseconds(10000)) {
    Request request;
    request.method = Method::kWatch;
    Reply reply;
    const Status status = channel.call(request, std::chrono::steady_clock::now() + time, reply);
    text = reply.text;
    return status;
  }

  std::shared_ptr<FakeDirectory> directory_ = std::make_shared<FakeDirectory>();
  const std::string name_ = "10.0.0.7:6174";
};

TEST_F(DiscoveringTransportTest, RecordsThatAServerHasFinishedItsJob) {
  Says server("says");
  {
    const auto listener = transport({"127.0.0.1:0", ""})->listen(name_, server);
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  }
  EXPECT_FALSE(directory_->has_finished(name_)) << "it was stopped, and may continue";
  auto listener = transport({"127.0.0.1:0", ""})->listen(name_, server);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  server.finish();
  EXPECT_FALSE(directory_->has_finished(name_));
  listener->reset();
  EXPECT_TRUE(directory_->has_finished(name_));
}

TEST_F(DiscoveringTransportTest, FollowsAServerToAnotherPort) {
  Says first("first");
  auto listener = transport({"127.0.0.1:0", ""})->listen(name_, first);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  const auto channel = transport({})->connect(name_);
  ASSERT_TRUE(channel.ok());
  EXPECT_EQ((*channel)->endpoint(), name_);
  std::string text;
  ASSERT_TRUE(ask(**channel, text).ok());
  EXPECT_EQ(text, "first");

  listener->reset();
  Says second("second");
  std::unique_ptr<Listener> other;
  std::thread comes_back([&] {
    std::this_thread::sleep_for(milliseconds(700));
    other = std::move(transport({"127.0.0.1:0", ""})->listen(name_, second)).value();
  });
  // the caller repeats failed calls
  Status status = ask(**channel, text);
  for (int i = 0; i < 20 && !status.ok(); ++i) status = ask(**channel, text);
  comes_back.join();
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(text, "second");
}

// A server that was paused while another one took its name answers nothing more, and ends.
TEST_F(DiscoveringTransportTest, AServerThatLostItsNameEnds) {
  Says first("first");
  const auto listener = transport({"127.0.0.1:0", ""})->listen(name_, first);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  EXPECT_EQ(first.term(), 3U);
  const auto channel = transport({})->connect(name_);
  std::string text;
  ASSERT_TRUE(ask(**channel, text).ok());
  EXPECT_TRUE(first.ended().ok());
  Says second("second");
  const auto other = transport({"127.0.0.1:0", ""})->listen(name_, second);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(second.term(), 4U);
  directory_->take_away(name_);
  const Status refused = ask(**channel, text);
  EXPECT_EQ(refused.code(), StatusCode::kDistributed);
  EXPECT_THAT(refused.to_string(), HasSubstr("another process serves as '10.0.0.7:6174'"));
  EXPECT_THAT(first.ended().to_string(), HasSubstr("with term 3, was paused or cut off"));
}

// It ends although no trainer calls it any more.
TEST_F(DiscoveringTransportTest, AServerThatNoticesItsLossEndsWithoutACall) {
  Says server("here");
  auto listener = transport({"127.0.0.1:0", ""})->listen(name_, server);
  ASSERT_TRUE(listener.ok());
  EXPECT_TRUE(server.ended().ok());
  directory_->notice(name_);
  EXPECT_THAT(server.ended().to_string(), HasSubstr("another process serves as '10.0.0.7:6174'"));
  listener->reset();
  directory_->notice(name_);  // nothing is left that could be called
}

// A server that cannot ask the directory lets calls wait, and their callers are not silent.
TEST_F(DiscoveringTransportTest, CallsWaitForTheDirectory) {
  Says server("here");
  const auto listener = transport({"127.0.0.1:0", ""})->listen(name_, server);
  ASSERT_TRUE(listener.ok());
  const auto channel = transport({})->connect(name_);
  std::string text;
  ASSERT_TRUE(ask(**channel, text).ok());
  EXPECT_EQ(server.times_heard(), 0);
  directory_->respond(false);
  std::thread heals([&] {
    std::this_thread::sleep_for(milliseconds(1200));
    directory_->respond(true);
  });
  const Status late = ask(**channel, text);
  heals.join();
  EXPECT_TRUE(late.ok()) << late.to_string();
  EXPECT_GE(server.times_heard(), 2);
  directory_->respond(false);
  const Status refused = ask(**channel, text, milliseconds(700));
  EXPECT_EQ(refused.code(), StatusCode::kDistributed);
  EXPECT_TRUE(server.ended().ok());
}

// A caller that loses its connection meanwhile would be taken for lost.
TEST_F(DiscoveringTransportTest, FindsAServerAgainWithoutTheDirectory) {
  Says server("here");
  auto listener = transport({"127.0.0.1:0", ""})->listen(name_, server);
  ASSERT_TRUE(listener.ok());
  const std::string address = (*listener)->endpoint();
  const auto channel = transport({})->connect(name_);
  std::string text;
  ASSERT_TRUE(ask(**channel, text).ok());
  listener->reset();
  EXPECT_FALSE(ask(**channel, text).ok());  // the connection is lost
  listener = transport({address, ""})->listen(name_, server);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  directory_->tell(false);
  const auto begin = std::chrono::steady_clock::now();
  const Status status = ask(**channel, text, milliseconds(1500));
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

// The first server hangs, as if it was paused. A call to it would wait until it runs again.
TEST_F(DiscoveringTransportTest, CallsToAReplacedServerEnd) {
  class Hangs final : public Handler {
   public:
    Status handle(const Request& request, Deadline deadline, ReplySink& /*reply*/) override {
      if (request.number == 0) ++inside;
      while (!wakes && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(milliseconds(20));
      return {StatusCode::kDistributed, "too late"};
    }
    std::atomic<int> inside{0};
    std::atomic<bool> wakes{false};
  };
  Hangs first;
  const auto listener = transport({"127.0.0.1:0", ""})->listen(name_, first);
  ASSERT_TRUE(listener.ok());
  const auto channel = transport({})->connect(name_);
  const auto begin = std::chrono::steady_clock::now();
  std::thread waits([&] {
    std::string text;
    EXPECT_FALSE(ask(**channel, text, milliseconds(30000)).ok());
  });
  while (first.inside == 0) std::this_thread::sleep_for(milliseconds(10));
  Says second("second");
  const auto other = transport({"127.0.0.1:0", ""})->listen(name_, second);
  ASSERT_TRUE(other.ok());
  std::string text;
  EXPECT_FALSE(ask(**channel, text, milliseconds(200)).ok());  // a heartbeat, to the first one
  const Status status = ask(**channel, text);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(text, "second");
  waits.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  first.wakes = true;
}

// A heartbeat must not last as long as a call that searches for the server.
TEST_F(DiscoveringTransportTest, ACallWaitsForASearchUntilItsOwnDeadline) {
  const auto channel = transport({})->connect(name_);
  std::thread searches([&] {
    std::string text;
    EXPECT_FALSE(ask(**channel, text, milliseconds(4000)).ok());
  });
  std::this_thread::sleep_for(milliseconds(300));
  const auto begin = std::chrono::steady_clock::now();
  std::string text;
  EXPECT_THAT(ask(**channel, text, milliseconds(300)).to_string(), HasSubstr("not found in time"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  searches.join();
}

TEST_F(DiscoveringTransportTest, SaysWhoIsMissing) {
  const auto channel = transport({})->connect(name_);
  std::string text;
  const Status nobody = ask(**channel, text, milliseconds(500));
  EXPECT_EQ(nobody.code(), StatusCode::kDistributed);
  EXPECT_THAT(nobody.to_string(), HasSubstr("no server has announced itself as '10.0.0.7:6174'"));

  Says server("here");
  auto listener = transport({"127.0.0.1:0", ""})->listen(name_, server);
  ASSERT_TRUE(listener.ok());
  const std::string address = (*listener)->endpoint();
  listener->reset();  // the entry stays, as after kill -9
  const Status silent = ask(**channel, text, milliseconds(500));
  EXPECT_EQ(silent.code(), StatusCode::kDistributed);
  EXPECT_THAT(silent.to_string(), HasSubstr("announced at " + address + ", which does not answer"));
}

TEST_F(DiscoveringTransportTest, WaitsForALostServerOnlySoLong) {
  Says server("here");
  auto listener = transport({"127.0.0.1:0", ""})->listen(name_, server);
  ASSERT_TRUE(listener.ok());
  const auto channel = transport({}, milliseconds(600))->connect(name_);
  std::string text;
  ASSERT_TRUE(ask(**channel, text).ok());
  listener->reset();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(ask(**channel, text).ok());  // the connection
  EXPECT_FALSE(ask(**channel, text).ok());  // the server
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(DiscoveringTransportTest, AnnouncesWhatOthersCanReach) {
  Says server("here");
  const auto listener = transport({"127.0.0.1:0", "db7.example"})->listen(name_, server);
  ASSERT_TRUE(listener.ok());
  const auto found = directory_->find(name_, {});
  const std::string& own = (*listener)->endpoint();
  EXPECT_EQ(**found, "db7.example" + own.substr(own.find(':')));
  const auto whole = transport({"127.0.0.1:0", "db7.example:80"})->listen("b:1", server);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(**directory_->find("b:1", {}), "db7.example:80");
}

}  // namespace
}  // namespace millrace::ps
