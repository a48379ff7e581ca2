// Programs that update parameters in a sub-block, as gradient merge of the original does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/text_form/parse.h"
#include "ops/registry.h"
#include "transpiler/distribute/transpilation.h"
#include "transpiler/pass_manager.h"
#include "transpiler/register_all.h"

namespace millrace::transpiler {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMergingMain = R"(# millrace program 1
block 0 {
  param w: f32(8, 1)
  persist lr: f32(1)
  persist sum: f32(8, 1)
  var second: bool(1)
  var scope: step_scopes
  var x: f32(-1, 8)
  var y@GRAD: f32(-1, 1)
  var w@GRAD: f32(8, 1)

  mul_grad X=x Y=w Out@GRAD=y@GRAD -> Y@GRAD=w@GRAD {op_role: 1, op_role_var: ["w", "w@GRAD"]}
  elementwise_add X=sum Y=w@GRAD -> Out=sum {op_role: 1, op_role_var: ["w", "sum"]}
  conditional_block Cond=second Input=w, sum, lr -> Out=w Scope=scope {is_scalar_condition: true, sub_block: ^1, op_role: 2}
}
block 1 parent=0 forward=1 {
  sgd Param=w Grad=sum LearningRate=lr -> ParamOut=w {op_role: 2, op_role_var: ["w", "sum"]}
}
)";
constexpr const char* kMergingStartup = R"(# millrace program 1
block 0 {
  persist w: f32(8, 1)

  fill_constant -> Out=w {shape: [8, 1], value: 0.5}
}
)";
constexpr const char* kMessage = "the update of param 'w' is in block 1";

std::unique_ptr<Program> read_merging(const char* text) {
  StatusOr<std::unique_ptr<Program>> program = parse_program(text, "test");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *std::move(program);
}

Status refusal_of(const std::string& transpiler, const std::string& mode) {
  const auto registry = ops::standard_registry();
  DistributeTranspilerConfig config;
  config.mode = mode;
  config.wait_port = false;
  config.geo_sgd_mode = transpiler == "geo";
  TranspileArguments arguments;
  arguments.pservers = "h:1,h:2";
  arguments.trainers = mode == "pserver" ? "2" : "h:1,h:2";
  arguments.current_endpoint = "h:1";
  const auto main = read_merging(kMergingMain);
  const auto startup = read_merging(kMergingStartup);
  return Transpilation::create(transpiler, *main, *startup, config, arguments, *registry).status();
}

TEST(UpdatesInBlocks, AreRefusedByJobs) {
  for (const auto& [transpiler, mode] :
       {std::pair("distribute", "pserver"), std::pair("distribute", "collective"),
        std::pair("distribute", "nccl2"), std::pair("geo", "pserver")}) {
    const Status status = refusal_of(transpiler, mode);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << transpiler << " " << mode;
    EXPECT_THAT(status.message(), HasSubstr(kMessage)) << transpiler << " " << mode;
  }
}

// The pass for several devices would add up the persistent sum in every step.
TEST(UpdatesInBlocks, AreRefusedBySeveralDevices) {
  PassRegistry passes;
  register_all(passes);
  const auto registry = ops::standard_registry();
  for (const auto& [devices, message] : {std::pair("2", kMessage), std::pair("1", "")}) {
    PassContext context(*registry);
    const auto manager =
        PassManager::create(passes, std::string("data-parallel{devices=") + devices + "}");
    ASSERT_TRUE(manager.ok()) << manager.status().to_string();
    const auto main = read_merging(kMergingMain);
    EXPECT_THAT(manager->run(*main, context, {}).status().message(), HasSubstr(message)) << devices;
  }
}

}  // namespace
}  // namespace millrace::transpiler
