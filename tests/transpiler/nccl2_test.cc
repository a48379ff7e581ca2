// Mode nccl2: main is unchanged, startup generates and distributes the ids of the communicators.

#include "transpiler/distribute/nccl2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/export.h"
#include "tests/transpiler/small_net.h"

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;

class Nccl2Test : public ::testing::Test {
 protected:
  Nccl2Test() {
    arguments_.trainers = "h1:1,h1:2,h2:1,h2:2";
    arguments_.current_endpoint = "h1:1";
    config_.mode = "nccl2";
  }
  StatusOr<RolePrograms> transpile() {
    return transpile_nccl2(*net_.main, *net_.startup, config_, arguments_, *registry_,
                           &properties_);
  }
  std::string refusal() { return transpile().status().message(); }

  SmallNet net_ = small_net();
  DistributeTranspilerConfig config_;
  TranspileArguments arguments_;
  ProgramProperties properties_;
  std::unique_ptr<ops::OpRegistry> registry_ = ops::standard_registry();
};

TEST_F(Nccl2Test, StartupMakesTheIdsAndMainStays) {
  config_.nccl_comm_num = 2;
  const auto out = transpile();
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_EQ(export_program(*out->main), export_program(*net_.main));
  EXPECT_EQ(op_lines(out->startup->root(),
                     {"trainers", "trainer_id", "nccl_comm_num", "use_hierarchical_allreduce",
                      "hierarchical_allreduce_inter_nranks"})
                .back(),
            "gen_nccl_id() -> NCCLID=NCCLID #0 trainers=[h1:1,h1:2,h2:1,h2:2] trainer_id=0 "
            "nccl_comm_num=2 use_hierarchical_allreduce=0 hierarchical_allreduce_inter_nranks=0");
  for (const char* name : {"NCCLID", "NCCLID_1"}) {
    const Var* const id = out->startup->root().find_var(name);
    ASSERT_NE(id, nullptr) << name;
    EXPECT_EQ(id->kind(), VarKind::kRaw);
    EXPECT_TRUE(id->persistable());
  }
  EXPECT_EQ(out->startup->root().find_var("NCCLID_2"), nullptr);
  EXPECT_EQ(out->startup->root().find_var("Hierarchical_inter_NCCLID_0"), nullptr);
  EXPECT_THAT(properties_.trainers_endpoints, ElementsAre("h1:1", "h1:2", "h2:1", "h2:2"));
  EXPECT_EQ(properties_.nccl_comm_num, 2);
  EXPECT_FALSE(properties_.is_distributed);
}

TEST_F(Nccl2Test, HierarchyAddsTwoIdsACommunicator) {
  config_.use_hierarchical_allreduce = true;
  config_.hierarchical_allreduce_inter_nranks = 2;
  auto out = transpile();
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_NE(out->startup->root().find_var("Hierarchical_inter_NCCLID_0"), nullptr);
  EXPECT_NE(out->startup->root().find_var("Hierarchical_exter_NCCLID_0"), nullptr);
  EXPECT_EQ(properties_.hierarchical_allreduce_inter_nranks, 2);

  config_.hierarchical_allreduce_inter_nranks = 0;  // 0: the number of devices
  arguments_.device_count = 2;
  out = transpile();
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_EQ(properties_.hierarchical_allreduce_inter_nranks, 2);
}

TEST_F(Nccl2Test, BadArgumentsAreRefused) {
  arguments_.trainer_id = -1;
  EXPECT_EQ(refusal(), "trainer_id is -1, expected 0 or more");
  arguments_.trainer_id = 0;
  config_.nccl_comm_num = 0;
  EXPECT_EQ(refusal(), "nccl_comm_num is 0, expected 1 or more");
  config_.nccl_comm_num = 1;
  config_.use_hierarchical_allreduce = true;
  EXPECT_EQ(
      refusal(),
      "hierarchical_allreduce_inter_nranks defaults to the number of local devices, but there "
      "are none");
  config_.hierarchical_allreduce_inter_nranks = 3;
  EXPECT_EQ(
      refusal(),
      "the number of trainers, 4, is not a multiple of hierarchical_allreduce_inter_nranks, 3");
  config_.hierarchical_allreduce_inter_nranks = 4;
  EXPECT_EQ(refusal(),
            "hierarchical allreduce needs more trainers than hierarchical_allreduce_inter_nranks, "
            "found 4 trainers and 4 ranks per node");
  config_.use_hierarchical_allreduce = false;
  arguments_.current_endpoint = "h9:1";
  EXPECT_EQ(refusal(), "current_endpoint \"h9:1\" is not one of the 4 trainers");
  arguments_.trainers = "2";
  EXPECT_EQ(refusal(), "'trainers' is the number 2, but mode nccl2 needs the trainers' endpoints");
}

}  // namespace
}  // namespace millrace::transpiler
