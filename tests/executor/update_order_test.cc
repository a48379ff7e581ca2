#include "executor/update_order.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/names.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kBackward = 1;
constexpr int32_t kOptimize = 2;

class UpdateOrderTest : public ::testing::Test {
 protected:
  void declare(llvm::StringRef name, bool persistable = false) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, {4});
    spec.persistable = persistable;
    block_.declare(name, spec);
  }
  Op& scale(llvm::StringRef from, llvm::StringRef to, int32_t role) {
    Op& op = block_.append_op("scale").set_input("X", from).set_output("Out", to);
    op.set_attr("op_role", AttrValue::of_int(role));
    return op;
  }
  Op& sgd(llvm::StringRef param, llvm::StringRef grad) {
    Op& op = block_.append_op("sgd")
                 .set_input("Param", param)
                 .set_input("Grad", grad)
                 .set_input("LearningRate", "lr")
                 .set_output("ParamOut", param);
    op.set_attr("op_role", AttrValue::of_int(kOptimize));
    return op;
  }
  // indices of the ops in program order, listed in the order in which they run
  std::vector<int64_t> order() const {
    std::vector<int64_t> indices;
    for (const Op* const op : order_with_early_updates(*program_))
      indices.push_back(op->location().op);
    return indices;
  }

  std::unique_ptr<Program> program_ = Program::create();
  Block& block_ = program_->root();
};

TEST_F(UpdateOrderTest, UpdatesRunBehindTheLastUseOfWhatTheyChange) {
  for (const char* const name : {"a", "b", "lr"}) declare(name, true);
  for (const char* const name : {"x", "a@GRAD", "b@GRAD"}) declare(name);
  scale("x", "b@GRAD", kBackward);  // 0
  scale("b", "a@GRAD", kBackward);  // 1 reads b
  scale("x", "x", kBackward);       // 2
  sgd("a", "a@GRAD");               // 3
  sgd("b", "b@GRAD");               // 4
  EXPECT_THAT(order(), ElementsAre(0, 1, 3, 4, 2));
}

TEST_F(UpdateOrderTest, WhatWorksForOneUpdateAloneGoesAlong) {
  for (const char* const name : {"a", "b", "lr"}) declare(name, true);
  for (const char* const name : {"x", "a@GRAD", "b@GRAD", "decay", "sum", "norm", "clipped"})
    declare(name);
  scale("x", "a@GRAD", kBackward);  // 0
  scale("x", "b@GRAD", kBackward);  // 1
  scale("a", "decay", kOptimize);   // 2
  block_
      .append_op("sum")  // 3
      .set_input("X", std::vector<std::string>{"a@GRAD", "decay"})
      .set_output("Out", "sum")
      .set_attr("op_role", AttrValue::of_int(kOptimize));
  scale("b@GRAD", "norm", kOptimize);   // 4
  scale("norm", "clipped", kOptimize);  // 5
  sgd("a", "sum");                      // 6
  sgd("b", "clipped");                  // 7
  scale("norm", "x", kOptimize);        // 8: another op that reads the norm
  EXPECT_THAT(order(), ElementsAre(0, 2, 3, 6, 1, 4, 5, 7, 8));
}

TEST_F(UpdateOrderTest, NothingPassesAnOpWithoutOutputs) {
  for (const char* const name : {"a", "lr"}) declare(name, true);
  for (const char* const name : {"x", "a@GRAD"}) declare(name);
  scale("x", "a@GRAD", kBackward);
  block_.append_op("assert").set_input("Cond", "x");
  scale("x", "x", kBackward);
  sgd("a", "a@GRAD");
  EXPECT_THAT(order(), ElementsAre(0, 1, 3, 2));
}

TEST_F(UpdateOrderTest, WhatOtherBlocksMentionStays) {
  for (const char* const name : {"a", "lr"}) declare(name, true);
  for (const char* const name : {"x", "a@GRAD"}) declare(name);
  scale("x", "a@GRAD", kBackward);
  scale("x", "x", kBackward);
  sgd("a", "a@GRAD");
  EXPECT_THAT(order(), ElementsAre(0, 2, 1));
  program_->add_block(0).append_op("scale").set_input("X", "a").set_output("Out", "x");
  EXPECT_THAT(order(), ElementsAre(0, 1, 2));
}

// True if the two must run in program order.
bool conflict(const Op& first, const Op& second) {
  const auto share = [](const auto& some, const auto& others) {
    return llvm::any_of(some,
                        [&](llvm::StringRef name) { return llvm::is_contained(others, name); });
  };
  return share(first.output_names(), second.input_names()) ||
         share(first.input_names(), second.output_names()) ||
         share(first.output_names(), second.output_names());
}

TEST_F(UpdateOrderTest, RandomProgramsKeepTheOrderOfOpsThatShareVars) {
  std::mt19937 random(7);
  const auto pick = [&random](int count) { return static_cast<int>(random() % count); };
  int moved = 0;
  for (int round = 0; round < 200; ++round) {
    program_ = Program::create();
    Block& block = program_->root();
    VarSpec spec = VarSpec::tensor(DType::kFloat32, {4});
    for (int i = 0; i < 8; ++i) {
      block.declare("t" + std::to_string(i), spec);
      spec.persistable = true;
      block.declare("p" + std::to_string(i), spec);
      spec.persistable = false;
    }
    block.declare("lr", spec);
    for (int i = 0; i < 40; ++i) {
      const std::string t = "t" + std::to_string(pick(8));
      if (pick(3) == 0) {
        const std::string p = "p" + std::to_string(pick(8));
        block.append_op("sgd")
            .set_input("Param", p)
            .set_input("Grad", t)
            .set_input("LearningRate", "lr")
            .set_output("ParamOut", p)
            .set_attr("op_role", AttrValue::of_int(kOptimize));
      } else {
        block.append_op("scale")
            .set_input("X", (pick(4) == 0 ? "p" : "t") + std::to_string(pick(8)))
            .set_output("Out", t)
            .set_attr("op_role", AttrValue::of_int(pick(2) == 0 ? kBackward : kOptimize));
      }
    }
    const std::vector<const Op*> ops = order_with_early_updates(*program_);
    ASSERT_EQ(ops.size(), block.op_count());
    for (size_t i = 0; i < ops.size(); ++i) {
      for (size_t j = i + 1; j < ops.size(); ++j) {
        if (ops[i]->comes_before(*ops[j])) continue;
        ++moved;
        ASSERT_FALSE(conflict(*ops[j], *ops[i]))
            << "round " << round << ": op " << ops[i]->location().op << " passed "
            << ops[j]->location().op;
      }
    }
  }
  EXPECT_GT(moved, 1000);
}

}  // namespace
}  // namespace millrace::executor
