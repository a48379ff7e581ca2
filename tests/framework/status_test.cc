// Errors as values that several threads hold.

#include "framework/base/status.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Status, AChangeLeavesCopiesAlone) {
  const Status first(StatusCode::kIo, "no room");
  const Status second = Status(first).with_note("in a copy").in_file("f");
  EXPECT_EQ(first.to_string(), "error: no room");
  EXPECT_EQ(second.to_string(), "error: f: no room\n  note: in a copy");
}

// For the thread sanitizer: nothing but the count of holders, which orders nothing, tells the
// changing thread that the other one has read and released its copy.
TEST(Status, ACopyOfAnotherThreadIsReadWhileThisOneIsChanged) {
  Status status(StatusCode::kIo, "no room");
  std::atomic<bool> released{false};
  std::thread reader([copy = status, &released]() mutable {
    EXPECT_EQ(copy.message(), "no room");
    EXPECT_TRUE(copy.location().file.empty());
    copy = Ok();
    released.store(true, std::memory_order_relaxed);
  });
  while (!released.load(std::memory_order_relaxed)) std::this_thread::yield();
  status = std::move(status).in_file("f");
  EXPECT_EQ(status.location().file, "f");
  reader.join();
}

}  // namespace
}  // namespace millrace
