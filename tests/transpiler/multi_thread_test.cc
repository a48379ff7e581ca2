// single_process_multi_thread has no reference programs. Its required output for every number of
// devices and machines and every way of fusing is tested here as properties.

#include <set>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/names.h"
#include "framework/op_attrs.h"
#include "ops/verify.h"
#include "tests/transpiler/small_net.h"
#include "transpiler/distribute/collective.h"

namespace millrace::transpiler {
namespace {

struct Case {
  int64_t devices;
  int64_t machines;
  int64_t fuse;
  bool scale;
};

class MultiThreadTest
    : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t, bool>> {
 protected:
  Case setup() const {
    return {std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam()),
            std::get<3>(GetParam())};
  }

  RolePrograms transpile(const SmallNetOptions& options = {}) {
    DistributeTranspilerConfig config;
    config.mode = "collective";
    config.collective_mode = "single_process_multi_thread";
    config.nccl_comm_num = 5;  // one ring is used for any value
    config.fuse_allreduce = setup().fuse;
    config.scale_loss_gradient = setup().scale;
    TranspileArguments arguments;
    arguments.device_count = setup().devices;
    arguments.trainers = "h0:1";
    for (int64_t i = 1; i < setup().machines; ++i) {
      arguments.trainers += ",h" + std::to_string(i) + ":1";
    }
    arguments.current_endpoint = "h0:1";
    const SmallNet net = small_net(options);
    auto result =
        transpile_collective(*net.main, *net.startup, config, arguments, *registry_, nullptr);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    if (!ops::check_program(*registry_, *net.main).ok()) return std::move(*result);
    for (const Program* const program : {result->main.get(), result->startup.get()}) {
      const Status status = ops::check_program(*registry_, *program);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    return std::move(*result);
  }

  static std::vector<const Op*> ops_of(const Program& program, llvm::StringRef type) {
    std::vector<const Op*> out;
    for (const Op& op : program.root().ops()) {
      if (op.type() == type) out.push_back(&op);
    }
    return out;
  }

  std::unique_ptr<ops::OpRegistry> registry_ = ops::standard_registry();
};

TEST_P(MultiThreadTest, TheLossGradientIsDividedByAllDevicesOfAllMachines) {
  const RolePrograms out = transpile();
  const auto scales = ops_of(*out.main, "scale");
  if (!setup().scale) {
    EXPECT_TRUE(scales.empty());
    return;
  }
  ASSERT_EQ(scales.size(), 1u);
  EXPECT_EQ(scales[0]->first_input("X"), "loss@GRAD");
  EXPECT_EQ(scales[0]->first_output("Out"), "loss@GRAD");
  EXPECT_FLOAT_EQ(get_attr_or<float>(*scales[0], "scale", 0),
                  1.0F / static_cast<float>(setup().devices * setup().machines));
}

TEST_P(MultiThreadTest, EveryGradientIsReducedOnceAfterItIsMadeAndBeforeItIsUsed) {
  const RolePrograms out = transpile();
  Block& block = out.main->root();
  const char* const type = setup().fuse == 2 ? "c_allreduce_xsum" : "c_allreduce_sum";
  std::multiset<std::string> reduced;
  for (const Op* op : ops_of(*out.main, type)) {
    EXPECT_EQ(get_attr_or<int32_t>(*op, "ring_id", -1), 0);
    for (const llvm::StringRef var : op->input("X")) {
      if (var != names::kFusedGrads) {
        reduced.insert(var.str());
        continue;
      }
      const Op* const join = block.first_writer(names::kFusedGrads);
      ASSERT_EQ(join->type(), "coalesce_tensor");
      EXPECT_EQ(join->input("Input"), join->output("Output"));
      for (const llvm::StringRef grad : join->input("Input")) reduced.insert(grad.str());
    }
    for (const Op* optimizer : ops_of(*out.main, "sgd")) EXPECT_TRUE(op->comes_before(*optimizer));
    EXPECT_TRUE(block.first_writer("w@GRAD")->comes_before(*op) || setup().fuse == 0);
  }
  EXPECT_THAT(reduced, ::testing::ElementsAre("b@GRAD", "w@GRAD"));
}

TEST_P(MultiThreadTest, TheUpdateWaitsForTheRing) {
  const RolePrograms out = transpile();
  const auto waits = ops_of(*out.main, "c_sync_comm_stream");
  ASSERT_EQ(waits.size(), 1u);
  const char* const type = setup().fuse == 2 ? "c_allreduce_xsum" : "c_allreduce_sum";
  for (const Op* reduce : ops_of(*out.main, type)) EXPECT_TRUE(reduce->comes_before(*waits[0]));
  for (const Op* update : ops_of(*out.main, "sgd")) EXPECT_TRUE(waits[0]->comes_before(*update));
}

// A ring must not read gradients that the stream of the other ops still computes.
TEST_P(MultiThreadTest, TheRingWaitsForTheGradients) {
  const RolePrograms out = transpile();
  const char* const type = setup().fuse == 2 ? "c_allreduce_xsum" : "c_allreduce_sum";
  for (const Op* const reduce : ops_of(*out.main, type)) {
    const Block& block = out.main->root();
    const std::vector<const Op*> waits = ops_of(*out.main, "c_sync_calc_stream");
    EXPECT_TRUE(llvm::any_of(waits, [&](const Op* wait) {
      return wait->comes_before(*reduce) && wait->reads(reduce->first_input("X")) &&
             block.first_writer(reduce->first_input("X"))->comes_before(*wait);
    })) << op_line(*reduce);
  }
}

TEST_P(MultiThreadTest, OneMachineJoinsItsDevicesAndSeveralJoinEachOther) {
  const RolePrograms out = transpile();
  const bool one = setup().machines == 1;
  EXPECT_EQ(ops_of(*out.startup, "c_comm_init_all").size(), one ? 1u : 0u);
  EXPECT_EQ(ops_of(*out.startup, "c_comm_init_multitrainer").size(), one ? 0u : 1u);
  EXPECT_EQ(ops_of(*out.startup, "c_gen_nccl_id").size(), one ? 0u : 1u);
  EXPECT_TRUE(ops_of(*out.startup, "c_broadcast").empty());
}

TEST_P(MultiThreadTest, TablesAreLeftOutOfTheReduction) {
  const RolePrograms out = transpile({.is_distributed = true, .is_sparse = true});
  for (const char* type : {"c_allreduce_sum", "c_allreduce_xsum", "coalesce_tensor"}) {
    for (const Op* op : ops_of(*out.main, type)) {
      for (const llvm::StringRef var : op->input_names()) EXPECT_NE(var, "w@GRAD");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MultiThreadTest,
                         ::testing::Combine(::testing::Values(1, 8), ::testing::Values(1, 3),
                                            ::testing::Values(0, 1, 2), ::testing::Bool()));

}  // namespace
}  // namespace millrace::transpiler
