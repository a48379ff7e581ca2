// The use of a value that is not there ends the process with a message: of a StatusOr that holds an
// error, and of an object that was moved from.

#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "framework/base/errors.h"
#include "framework/base/status.h"

namespace millrace {
namespace {

StatusOr<std::string> failed() {
  return NotFound("no file '{}'", "x.npz").with_hint("write it first");
}

TEST(StatusOrDeathTest, UseOfAnErrorShowsIt) {
  StatusOr<std::string> error = failed();
  const StatusOr<std::string>& same = error;
  const char* const message = "a StatusOr was used that has no value: error: no file 'x.npz'";
  EXPECT_DEATH((void)error.value(), message);
  EXPECT_DEATH((void)same.value(), message);
  EXPECT_DEATH((void)failed().value(), message);
  EXPECT_DEATH((void)*error, message);
  EXPECT_DEATH((void)*same, message);
  EXPECT_DEATH((void)*failed(), message);
  EXPECT_DEATH((void)error->size(), message);
  EXPECT_DEATH((void)same->size(), message);
  EXPECT_DEATH((void)failed().value(), "hint: write it first");
}

TEST(StatusOrDeathTest, AnOkStatusIsNoReasonForAMissingValue) {
  EXPECT_DEATH((void)StatusOr<int>(Ok()), "a StatusOr was used that has no value: ok");
}

TEST(StatusOr, ReturnsItsValue) {
  StatusOr<std::unique_ptr<std::string>> text = std::make_unique<std::string>("abc");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(**text, "abc");
  EXPECT_EQ((*text)->size(), 3U);
  const std::unique_ptr<std::string> taken = std::move(text).value();
  EXPECT_EQ(*taken, "abc");
}

struct Inside {
  int number = 7;
};

TEST(PartsPtr, IsWhatItOwns) {
  PartsPtr<Inside> parts(std::make_unique<Inside>());
  EXPECT_EQ(parts->number, 7);
  PartsPtr<Inside> other = std::move(parts);
  EXPECT_EQ((*other).number, 7);
  EXPECT_EQ(other.pointer()->number, 7);
}

TEST(PartsPtrDeathTest, UseAfterAMoveNamesTheParts) {
  PartsPtr<Inside> parts(std::make_unique<Inside>());
  PartsPtr<Inside, std::shared_ptr<Inside>> shared(std::make_shared<Inside>());
  const PartsPtr<Inside> other = std::move(parts);
  const PartsPtr<Inside, std::shared_ptr<Inside>> other_shared = std::move(shared);
  // NOLINTBEGIN(bugprone-use-after-move)
  EXPECT_DEATH((void)parts->number, "used after it was moved from: it has no .*::Inside\n");
  EXPECT_DEATH((void)*parts, "used after it was moved from");
  EXPECT_DEATH((void)shared->number, "used after it was moved from: it has no .*::Inside\n");
  parts = PartsPtr<Inside>(std::make_unique<Inside>(Inside{8}));
  EXPECT_EQ(parts->number, 8);
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace millrace
