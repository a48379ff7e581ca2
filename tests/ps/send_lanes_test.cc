#include "ps/communicator/send_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ps/fake_sender.h"

// Small values that were once sent together wait for each other, but not forever, and other values
// do not wait for them.

namespace millrace::ps {
namespace {

using testing::context;
using testing::dense;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr auto kLong = std::chrono::seconds(100);

// Two lanes, "a" and "b", and the batches that were sent.
class SendLanesTest : public ::testing::Test {
 protected:
  void start(int queue, std::chrono::microseconds patience) {
    LaneOptions options;
    options.queue = queue;
    options.threads = 2;
    options.deadline_ms = 20'000;
    options.patience = patience;
    lanes_ = std::make_unique<SendLanes>(
        std::vector<const CommContext*>{&a_, &b_}, options,
        [this](std::span<const SendLanes::Message> messages) { return take(messages); });
    lanes_->start();
  }

  Status take(std::span<const SendLanes::Message> messages) {
    std::unique_lock lock(mutex_);
    std::vector<size_t>& lanes = loads_.emplace_back();
    for (const SendLanes::Message& message : messages) lanes.push_back(message.lane);
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_blocked_; });
    return Ok();
  }

  Status push(size_t lane) {
    Value value = dense({1});
    return lanes_->push(lane, 0, nullptr, &value);
  }

  bool wait_for_loads(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             [&] { return loads_.size() >= count; });
  }

  // The batch that was sent at that position; lanes may continue meanwhile.
  std::vector<size_t> load(size_t place) {
    const std::lock_guard lock(mutex_);
    return loads_.at(place);
  }

  size_t load_count() {
    const std::lock_guard lock(mutex_);
    return loads_.size();
  }

  void block(bool now) {
    const std::lock_guard lock(mutex_);
    is_blocked_ = now;
    changed_.notify_all();
  }

  // The first batch has only a, the second one both.
  void let_both_leave_together() {
    block(true);
    ASSERT_TRUE(push(0).ok());
    ASSERT_TRUE(wait_for_loads(1));
    ASSERT_TRUE(push(1).ok());
    ASSERT_TRUE(push(0).ok());
    block(false);
    ASSERT_TRUE(wait_for_loads(2));
    ASSERT_THAT(load(0), ElementsAre(0));
    ASSERT_THAT(load(1), UnorderedElementsAre(0, 1));
  }

  CommContext a_ = context("a");
  CommContext b_ = context("b");
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<size_t>> loads_;
  bool is_blocked_ = false;
  std::unique_ptr<SendLanes> lanes_;
};

TEST_F(SendLanesTest, WhatLeftTogetherLeavesTogether) {
  start(4, kLong);
  let_both_leave_together();
  ASSERT_TRUE(push(0).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ASSERT_TRUE(push(1).ok());
  ASSERT_TRUE(wait_for_loads(3));
  EXPECT_THAT(load(2), UnorderedElementsAre(0, 1));
}

TEST_F(SendLanesTest, WhatDoesNotComeIsWaitedForOnce) {
  start(4, std::chrono::milliseconds(20));
  let_both_leave_together();
  for (size_t count = 3; count < 6; ++count) {
    ASSERT_TRUE(push(0).ok());
    ASSERT_TRUE(wait_for_loads(count));
    EXPECT_THAT(load(count - 1), ElementsAre(0));
  }
}

TEST_F(SendLanesTest, AFullQueueDoesNotWait) {
  start(1, kLong);
  let_both_leave_together();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(push(0).ok());
  ASSERT_TRUE(wait_for_loads(3));
  EXPECT_THAT(load(2), ElementsAre(0));
}

TEST_F(SendLanesTest, AFlushDoesNotWait) {
  start(4, kLong);
  let_both_leave_together();
  ASSERT_TRUE(push(0).ok());
  ASSERT_TRUE(lanes_->flush(1, std::chrono::steady_clock::now() + std::chrono::seconds(20)).ok());
  EXPECT_EQ(load_count(), 3U);
}

}  // namespace
}  // namespace millrace::ps
