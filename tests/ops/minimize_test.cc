#include "ops/minimize/minimize.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "ops/minimize/schedule.h"
#include "ops/verify.h"

namespace millrace::ops {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// y = mean(x * w), before training ops are appended.
class MinimizeTest : public ::testing::Test {
 protected:
  MinimizeTest() {
    Block& block = main_->root();
    VarSpec x = VarSpec::tensor(DType::kFloat32, {-1, 4});
    x.stop_gradient = true;
    block.declare("x", x);
    VarSpec w = VarSpec::tensor(DType::kFloat32, {4, 1});
    w.persistable = true;
    w.is_parameter = true;
    block.declare("w", w);
    startup_->root().declare("w", w);
    block.declare("y", VarSpec::tensor(DType::kFloat32, {-1, 1}));
    block.declare("loss", VarSpec::tensor(DType::kFloat32, {}));
    block.append_op("mul").set_input("X", "x").set_input("Y", "w").set_output("Out", "y");
    block.append_op("mean").set_input("X", "y").set_output("Out", "loss");
  }

  std::vector<std::string> optimize_types(Builder& builder, const MinimizeOptions& options) {
    const StatusOr<MinimizeResult> result = minimize(builder, "loss", options);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    std::vector<std::string> types;
    if (!result.ok()) return types;
    for (const Op* const op : result->optimize_ops) types.push_back(op->type().str());
    const Status status = check_program(*registry_, *main_);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return types;
  }

  std::unique_ptr<OpRegistry> registry_ = standard_registry();
  std::unique_ptr<Program> main_ = Program::create();
  std::unique_ptr<Program> startup_ = Program::create();
};

TEST_F(MinimizeTest, ReturnsTheUpdatesTheGradientsAndTheRate) {
  Builder builder(*registry_, *main_, *startup_);
  const StatusOr<MinimizeResult> result = minimize(builder, "loss", {.learning_rate = 0.5});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->learning_rate, "learning_rate_0");
  EXPECT_THAT(result->param_grads, ElementsAre(ParamGrad{"w", "w@GRAD"}));
  ASSERT_EQ(result->optimize_ops.size(), 1U);
  EXPECT_EQ(result->optimize_ops[0]->type(), "sgd");
}

TEST_F(MinimizeTest, RatesBeyondFloat32AreErrors) {
  Builder builder(*registry_, *main_, *startup_);
  EXPECT_THAT(minimize(builder, "loss", {.learning_rate = 1e39}).status().message(),
              HasSubstr("learning_rate: expected a number that float32 can hold, found 1e+39"));
}

TEST_F(MinimizeTest, CountsAScaledRateAndPowersAmongTheUpdates) {
  Builder builder(*registry_, *main_, *startup_);
  MinimizeOptions options;
  options.method = Adamax{};
  options.parameter_options["w"].learning_rate = 0.5;
  EXPECT_THAT(optimize_types(builder, options), ElementsAre("scale", "adamax", "scale"));
}

TEST_F(MinimizeTest, GoesOnCountingInASecondCall) {
  Builder builder(*registry_, *main_, *startup_);
  MinimizeOptions options;
  options.method = Momentum{};
  optimize_types(builder, options);
  const StatusOr<MinimizeResult> second = minimize(builder, "loss", options);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ(second->learning_rate, "learning_rate_1");
  EXPECT_EQ(second->optimize_ops[0]->first_input("Velocity"), "w_velocity_1");
  EXPECT_EQ(second->optimize_ops[0]->first_input("Grad"), "grad/grad/w@GRAD");
  EXPECT_EQ(second->optimize_ops[0]->find_attr("op_namescope")->string(), "/optimizer_1/");
}

TEST_F(MinimizeTest, TakesARateThatTheProgramComputes) {
  Builder builder(*registry_, *main_, *startup_);
  const StatusOr<std::string> rate =
      add_schedule(builder, NoamDecay{.d_model = 16, .warmup_steps = 4});
  ASSERT_TRUE(rate.ok()) << rate.status().to_string();
  EXPECT_EQ(main_->root().front().type(), "increment");
  EXPECT_THAT(optimize_types(builder, {.learning_rate = RateVar{*rate}}), ElementsAre("sgd"));
  EXPECT_EQ(main_->root().back().first_input("LearningRate"), *rate);
}

TEST_F(MinimizeTest, UpdatesAHalfPrecisionParameterThroughItsCopy) {
  for (Program* const program : {main_.get(), startup_.get()}) {
    VarSpec spec = program->root().find_var("w")->spec();
    spec.dtype = DType::kFloat16;
    program->root().find_var("w")->set_spec(spec);
  }
  Builder builder(*registry_, *main_, *startup_);
  MinimizeOptions options;
  options.method = Adam{.multi_precision = true};
  EXPECT_TRUE(minimize(builder, "loss", options).ok());
  const Op& adam = main_->root().back();
  EXPECT_EQ(adam.first_input("MasterParam"), "w_fp32_master_0");
  EXPECT_EQ(adam.first_input("Moment1"), "w_fp32_master_0_moment1_0");
  EXPECT_EQ(main_->root().find_var("w_fp32_master_0_moment1_0")->dtype(), DType::kFloat32);
}

TEST_F(MinimizeTest, RefusesARateThatNothingDeclares) {
  Builder builder(*registry_, *main_, *startup_);
  const auto result = minimize(builder, "loss", {.learning_rate = RateVar{"rate"}});
  EXPECT_THAT(result.status().message(),
              HasSubstr("learning rate 'rate': expected a var of block 0"));
}

TEST_F(MinimizeTest, RefusesNamesThatNothingDeclares) {
  const auto refused = [this](const MinimizeOptions& options) {
    Builder builder(*registry_, *main_, *startup_);
    return minimize(builder, "loss", options).status().message();
  };
  EXPECT_EQ(refused({.parameters = {"w", "v"}}),
            "parameters: the program declares no var 'v' in block 0");
  EXPECT_EQ(refused({.no_grad = {"v"}}), "no_grad: the program declares no var 'v'");
  EXPECT_EQ(refused({.parameter_options = {{"v", {}}}}),
            "parameter_options: the program declares no var 'v' in block 0");
  EXPECT_EQ(refused({.error_clips = {{"v", {-1, 1}}}}),
            "error_clips: the program declares no var 'v'");
}

TEST_F(MinimizeTest, SaysThatThereIsNothingToTrain) {
  Builder builder(*registry_, *main_, *startup_);
  const StatusOr<MinimizeResult> result = minimize(builder, "loss", {.no_grad = {"w"}});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  ASSERT_EQ(result->warnings.size(), 1U);
  EXPECT_THAT(result->warnings[0].message(), HasSubstr("nothing is trained"));
  VarSpec spec = main_->root().find_var("w")->spec();
  spec.is_parameter.reset();
  main_->root().find_var("w")->set_spec(spec);
  const Status refused = minimize(builder, "loss", {}).status();
  EXPECT_THAT(refused.message(), HasSubstr("does not say which vars are parameters"));
  EXPECT_THAT(refused.hint(), HasSubstr("'parameters'"));
}

// Changes w to a var that cannot be a parameter.
struct NoParameter {
  const char* name;
  void (*change)(Block& block);
};

void change_w(Block& block, void (*change)(VarSpec& spec)) {
  VarSpec spec = block.find_var("w")->spec();
  spec.is_parameter.reset();
  change(spec);
  block.find_var("w")->set_spec(spec);
}

class NoParameterTest : public MinimizeTest, public ::testing::WithParamInterface<NoParameter> {};

TEST_P(NoParameterTest, IsNotTrained) {
  GetParam().change(main_->root());
  Builder builder(*registry_, *main_, *startup_);
  const StatusOr<MinimizeResult> result = minimize(builder, "loss", {});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  ASSERT_EQ(result->warnings.size(), 1U);
  EXPECT_THAT(result->warnings[0].message(), HasSubstr("nothing is trained"));
}

INSTANTIATE_TEST_SUITE_P(Vars, NoParameterTest,
                         ::testing::Values(NoParameter{"not_stored",
                                                       [](Block& block) {
                                                         change_w(block, [](VarSpec& spec) {
                                                           spec.persistable = false;
                                                         });
                                                       }},
                                           NoParameter{"integers",
                                                       [](Block& block) {
                                                         change_w(block, [](VarSpec& spec) {
                                                           spec.dtype = DType::kInt64;
                                                         });
                                                       }},
                                           NoParameter{"computed",
                                                       [](Block& block) {
                                                         change_w(block, [](VarSpec&) {});
                                                         block.insert_before(&block.front(), "tanh")
                                                             .set_input("X", "x")
                                                             .set_output("Out", "w");
                                                       }},
                                           NoParameter{"not_read",
                                                       [](Block& block) {
                                                         change_w(block, [](VarSpec&) {});
                                                         block.front().set_input("Y", "x");
                                                       }}),
                         [](const auto& var) { return std::string(var.param.name); });

TEST_F(MinimizeTest, RefusesToBeginInsideABlock) {
  Builder builder(*registry_, *main_, *startup_);
  builder.enter_block();
  EXPECT_THAT(minimize(builder, "loss", {}).status().message(),
              HasSubstr("expected block 0 as current block, found 1"));
}

TEST_F(MinimizeTest, RefusesSchedulesThatMakeNoSense) {
  Builder builder(*registry_, *main_, *startup_);
  EXPECT_THAT(add_schedule(builder, Decay(CosineDecay{.learning_rate = 0.1, .epochs = 3}))
                  .status()
                  .message(),
              HasSubstr("cosine schedule: 'step_each_epoch' must be positive, found 0"));
  EXPECT_THAT(add_schedule(builder, Decay(PiecewiseDecay{.boundaries = {1}, .values = {1}}))
                  .status()
                  .message(),
              HasSubstr("expected one more value than boundaries, found 1 and 1"));
  const PiecewiseDecay turned{.boundaries = {3, 2}, .values = {1, 2, 3}};
  EXPECT_THAT(add_schedule(builder, Decay(turned)).status().message(),
              HasSubstr("expected boundaries that increase"));
}

// The ops and names of the original: squares in half precision, their sum and the factor in single
// precision, and the factor again in half precision.
TEST_F(MinimizeTest, TheGlobalNormOfHalfPrecisionIsSingle) {
  VarSpec spec = main_->root().find_var("w")->spec();
  spec.dtype = DType::kFloat16;
  main_->root().find_var("w")->set_spec(spec);
  Builder builder(*registry_, *main_, *startup_);
  const auto result = minimize(builder, "loss", {.clip = ClipByGlobalNorm{1.0}});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  std::vector<std::string> found;
  for (const Op& op : main_->root().ops()) {
    if (!llvm::StringRef(get_attr_or<std::string>(op, "op_namescope", ""))
             .contains("gradient_clip"))
      continue;
    found.push_back(op.type().str());
    if (op.type() != "cast") continue;
    found.back() += fmt::format(" {} {}", get_attr_or<int32_t>(op, "in_dtype", 0),
                                get_attr_or<int32_t>(op, "out_dtype", 0));
  }
  EXPECT_THAT(found,
              ElementsAre("squared_l2_norm", "sum", "cast 4 5", "sqrt", "fill_constant",
                          "elementwise_max", "elementwise_div", "cast 5 4", "elementwise_mul"));
}

TEST(UniqueNames, GoOnBehindTheNamesOfAProgram) {
  const auto program = Program::create();
  for (const char* const name : {"fc_0.tmp_3", "fc_7.w_0", "tmp_12@GRAD", "x_99999999999"})
    program->root().declare(name, VarSpec::tensor(DType::kFloat32, {}));
  UniqueNames names;
  names.continue_after(*program);
  EXPECT_EQ(names.next("fc"), "fc_8");
  EXPECT_EQ(names.next("fc_0.tmp"), "fc_0.tmp_4");
  EXPECT_EQ(names.next("tmp"), "tmp_0") << "gradients are not counted by themselves";
  EXPECT_EQ(names.next("x"), "x_0") << "no counter gets that far";
}

TEST(NameScopes, CountOpeningsOfEachPathByItself) {
  NameScopes scopes;
  EXPECT_EQ(scopes.open("/", "a"), "/a/");
  EXPECT_EQ(scopes.open("/", "a"), "/a_1/");
  EXPECT_EQ(scopes.open("/a_1/", "b"), "/a_1/b/");
  EXPECT_EQ(scopes.open("/a/", "b"), "/a/b/");
  scopes.continue_after("c", 3);
  EXPECT_EQ(scopes.open("/", "c"), "/c_3/");
}

TEST(NumberText, IsTheShortestThatReadsBack) {
  EXPECT_EQ(number_text(0.05), "0.05");
  EXPECT_EQ(number_text(-1), "-1.0");
  EXPECT_EQ(number_text(1e-5), "1e-05");
  EXPECT_EQ(number_text(1e16), "1e+16");
  EXPECT_EQ(number_text(0.1 + 0.2), "0.30000000000000004");
}

}  // namespace
}  // namespace millrace::ops
