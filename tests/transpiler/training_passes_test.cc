// Passes that make a training program from a forward program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/text_form/parse.h"
#include "ops/verify.h"
#include "transpiler/pass_manager.h"
#include "transpiler/passes/training.h"
#include "transpiler/register_all.h"

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;

constexpr const char* kForward = R"(# millrace program 1
block 0 {
  param w: f32(8, 1)
  var x: f32(-1, 8)
  var y: f32(-1, 1)
  var loss: f32(1)

  mul X=x Y=w -> Out=y
  mean X=y -> Out=loss
}
)";

constexpr const char* kStartup = R"(# millrace program 1
block 0 {
  persist w: f32(8, 1)

  fill_constant -> Out=w {shape: [8, 1], value: 0.5}
}
)";

std::unique_ptr<Program> read_text(const char* text) {
  StatusOr<std::unique_ptr<Program>> program = parse_program(text, "test");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *std::move(program);
}

class TrainingPassesTest : public ::testing::Test {
 protected:
  TrainingPassesTest() {
    register_all(passes_);
    context_.startup = startup_.get();
    options_.verify = [this](const Program& program) {
      return ops::check_program(*registry_, program);
    };
  }
  Status run(llvm::StringRef pipeline) {
    MILLRACE_ASSIGN_OR_RETURN(const PassManager manager, PassManager::create(passes_, pipeline));
    return manager.run(*main_, context_, options_).status();
  }

  PassRegistry passes_;
  std::unique_ptr<ops::OpRegistry> registry_ = ops::standard_registry();
  std::unique_ptr<Program> main_ = read_text(kForward);
  std::unique_ptr<Program> startup_ = read_text(kStartup);
  PassContext context_{*registry_};
  PassManagerOptions options_;
};

TEST_F(TrainingPassesTest, AppendBackwardComputesTheGradients) {
  const Status status = run("append-backward{loss=loss}");
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(main_->root().back().type(), "mul_grad");
  EXPECT_NE(main_->root().find_var("w@GRAD"), nullptr);
}

TEST_F(TrainingPassesTest, MinimizeAppendsUpdatesAndState) {
  const Status status = run("minimize{loss=loss,method=momentum,learning-rate=0.1}");
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(main_->root().back().type(), "momentum");
  EXPECT_GT(startup_->root().op_count(), 1U);
}

TEST_F(TrainingPassesTest, MinimizeLeavesTheRates) {
  TrainingFacts facts;
  context_.job = &facts;
  TrainedLoss loss{"loss", {}};
  loss.options.learning_rate = SteppedRate{0.25};
  const Status status =
      PassManager::of(minimize_pass({std::move(loss)})).run(*main_, context_, options_).status();
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_EQ(facts.learning_rates.size(), 1U);
  EXPECT_NE(main_->root().find_var(facts.learning_rates.front()), nullptr);
}

TEST_F(TrainingPassesTest, MinimizeNeedsAStartupProgram) {
  context_.startup = nullptr;
  EXPECT_EQ(run("minimize{loss=loss}").message(),
            "there is no startup program, which initializes the state of the optimizer");
}

TEST_F(TrainingPassesTest, AMissingLossIsNamed) {
  const Status status = run("append-backward{loss=gone}");
  EXPECT_EQ(status.code(), StatusCode::kInvalidProgram);
  EXPECT_THAT(status.to_string(), ::testing::HasSubstr("gone"));
  EXPECT_THAT(status.notes(),
              ElementsAre("in pass 'append-backward' (1 of 1) of 'append-backward{loss=gone}'"));
}

}  // namespace
}  // namespace millrace::transpiler
