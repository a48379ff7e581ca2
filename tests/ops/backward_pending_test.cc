// Sums of gradients with several writers, and gradients that are not needed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/backward/pending.h"

namespace millrace::ops::backward {
namespace {

using ::testing::ElementsAre;

PendingOp pending_op(const char* type, std::vector<std::string> inputs,
                     std::vector<std::string> outputs) {
  GradOp made(type);
  made.input("X", std::move(inputs)).output("Out", std::move(outputs));
  return {std::move(made), nullptr};
}

std::vector<std::string> lines_of(const std::vector<PendingOp>& ops) {
  std::vector<std::string> lines;
  for (const PendingOp& pending : ops) {
    std::string line;
    pending.each_output([&](const std::string& name) { line += name + " "; });
    line += "= " + pending.op.type;
    pending.each_input([&](const std::string& name) { line += " " + name; });
    lines.push_back(line);
  }
  return lines;
}

// As in the original.
TEST(SumRepeatedOutputsTest, SumsInTheEndAreInOrderOfTheFirstTerms) {
  std::vector<PendingOp> ops{
      pending_op("f", {"y@GRAD"}, {"b@GRAD"}), pending_op("f", {"y@GRAD"}, {"a@GRAD"}),
      pending_op("f", {"y@GRAD"}, {"a@GRAD"}), pending_op("f", {"y@GRAD"}, {"b@GRAD"})};
  sum_repeated_outputs(ops, 0, {});
  EXPECT_THAT(lines_of(ops),
              ElementsAre("b@GRAD@RENAME@block0@0 = f y@GRAD", "a@GRAD@RENAME@block0@0 = f y@GRAD",
                          "a@GRAD@RENAME@block0@1 = f y@GRAD", "b@GRAD@RENAME@block0@1 = f y@GRAD",
                          "b@GRAD = sum b@GRAD@RENAME@block0@0 b@GRAD@RENAME@block0@1",
                          "a@GRAD = sum a@GRAD@RENAME@block0@0 a@GRAD@RENAME@block0@1"));
}

// The first op reads nothing but an unneeded gradient, so what it writes is not needed either. The
// second op reads it beside another gradient.
TEST(RemoveUnneededTest, AResultOfARemovedOpIsReplacedByZeros) {
  std::vector<PendingOp> ops{pending_op("f", {"h@GRAD"}, {"a@GRAD"}),
                             pending_op("g", {"a@GRAD", "b@GRAD"}, {"x@GRAD"})};
  remove_unneeded(ops, {"h"});
  EXPECT_THAT(lines_of(ops), ElementsAre("a@GRAD = fill_any_like a", "x@GRAD = g a@GRAD b@GRAD"));
}

TEST(RemoveUnneededTest, ZerosAreWrittenOnce) {
  std::vector<PendingOp> ops{pending_op("f", {"h@GRAD", "b@GRAD"}, {"x@GRAD"}),
                             pending_op("g", {"h@GRAD", "b@GRAD"}, {"y@GRAD"})};
  remove_unneeded(ops, {"h"});
  EXPECT_THAT(lines_of(ops), ElementsAre("h@GRAD = fill_any_like h", "x@GRAD = f h@GRAD b@GRAD",
                                         "y@GRAD = g h@GRAD b@GRAD"));
}

}  // namespace
}  // namespace millrace::ops::backward
