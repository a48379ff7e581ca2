// General passes on real programs: the result verifies, and a second run changes nothing.

#include <gtest/gtest.h>

#include "framework/export.h"
#include "framework/read_program.h"
#include "ops/registry.h"
#include "transpiler/pass_manager.h"
#include "transpiler/register_all.h"

namespace millrace::transpiler {
namespace {

constexpr const char* kTraining = "tests/data/resnet50_train/main_program";

class RealPrograms : public ::testing::TestWithParam<const char*> {
 protected:
  RealPrograms() { register_all(passes_); }

  std::unique_ptr<Program> read() {
    auto program = read_program(kTraining);
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    return *std::move(program);
  }
  PipelineReport run(llvm::StringRef pipeline, Program& program) {
    PassContext context(*ops_);
    const auto manager = PassManager::create(passes_, pipeline);
    EXPECT_TRUE(manager.ok()) << manager.status().to_string();
    auto report = manager->run(program, context);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? *std::move(report) : PipelineReport{};
  }

  PassRegistry passes_;
  std::unique_ptr<ops::OpRegistry> ops_ = ops::standard_registry();
};

TEST_P(RealPrograms, ASecondRunChangesNothing) {
  const auto program = read();
  run(GetParam(), *program);
  const std::string once = export_program(*program);
  EXPECT_FALSE(run(GetParam(), *program).changed());
  EXPECT_EQ(export_program(*program), once);
}

INSTANTIATE_TEST_SUITE_P(All, RealPrograms,
                         ::testing::Values("canonicalize", "extract-forward",
                                           "fold-shape-constants", "remove-dead-ops",
                                           "remove-feed-fetch", "remove-unused-blocks",
                                           "remove-unused-vars", "set-is-test", "strip-debug",
                                           "upgrade-program", "infer-shapes{skip-unknown=true}",
                                           "prune{targets=[fc_0.tmp_1]}"));

TEST_F(RealPrograms, ForwardSliceOfATrainingProgramHasNoOtherRoles) {
  const auto program = read();
  const size_t before = program->root().op_count();
  run("extract-forward", *program);
  EXPECT_LT(program->root().op_count(), before);
  for (const Op& op : program->root().ops()) {
    const int32_t role = get_attr_or<int32_t>(op, "op_role", 0);
    EXPECT_EQ(role & ~256, 0) << op.type().str();
    EXPECT_FALSE(op.type().endswith("_grad")) << op.type().str();
  }
}

TEST_F(RealPrograms, PassesThatFindNothingKeepTheBytes) {
  const auto program = read();
  const std::string before = export_program(*program);
  EXPECT_FALSE(run("remove-feed-fetch,remove-unused-blocks", *program).changed());
  EXPECT_EQ(export_program(*program), before);
}

}  // namespace
}  // namespace millrace::transpiler
