#include "executor/gradients/check_gradients.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/gradients/float64.h"
#include "executor/gradients/sample_elements.h"
#include "executor/standard_runtime.h"
#include "framework/read_program.h"
#include "io/npz.h"
#include "ops/backward/append_backward.h"
#include "ops/verify.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// loss = mean(tanh(x w))
class CheckGradientsTest : public ::testing::Test {
 protected:
  CheckGradientsTest() {
    Block& block = program_->root();
    VarSpec x = VarSpec::tensor(DType::kFloat32, {2, 3});
    x.stop_gradient = true;
    block.declare("x", x);
    for (const char* const name : {"a", "b", "c", "mask"})
      block.declare(name, VarSpec::tensor(DType::kFloat32, {2, 2}));
    block.declare("loss", VarSpec::tensor(DType::kFloat32, {1}));
    VarSpec w = VarSpec::tensor(DType::kFloat32, {3, 2});
    w.persistable = true;
    w.is_parameter = true;
    block.declare("w", w);
    op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
    op("tanh", {{"X", "a"}}, "b");
    options_.loss = "loss";
    scope_.local("w") = tensor_value({3, 2}, {0.1F, -0.2F, 0.3F, 0.5F, -0.4F, 0.2F});
    feeds_["x"] = tensor_value({2, 3}, {1, -2, 0.5F, 0.3F, 0.7F, -1});
  }

  Op& op(const char* type, std::vector<std::pair<const char*, const char*>> inputs,
         const char* out) {
    Op& made = program_->root().append_op(type);
    for (const auto& [slot, name] : inputs) made.set_input(slot, name);
    made.set_output("Out", out);
    return made;
  }

  StatusOr<GradientReport> check() {
    return check_gradients(runtime_, *program_, scope_, feeds_, options_);
  }

  // The program with its gradients, for tests that corrupt them.
  void append_gradients() {
    ops::BackwardRequest request;
    request.loss = "loss";
    ASSERT_TRUE(ops::append_backward(*runtime_->ops, *program_, request).ok());
    options_.loss.clear();
  }

  std::shared_ptr<const Runtime> runtime_ = standard_runtime();
  std::unique_ptr<Program> program_ = Program::create();
  Scope scope_;
  NamedValues feeds_;
  GradientCheckOptions options_;
};

TEST_F(CheckGradientsTest, AgreesWithCentralDifferences) {
  op("mean", {{"X", "b"}}, "loss");
  const auto report = check();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->ok());
  ASSERT_EQ(report->params.size(), 1U);
  EXPECT_EQ(report->params[0].param, "w");
  EXPECT_EQ(report->params[0].grad, "w@GRAD");
  EXPECT_EQ(report->params[0].elements, 6);
  EXPECT_EQ(report->params[0].checked, 6);
  EXPECT_LT(report->params[0].worst.error, 1e-8) << "float64 has the digits";
  EXPECT_EQ(floats(*scope_.find("w"))[0], 0.1F) << "the caller's values stay";
}

TEST_F(CheckGradientsTest, FindsAWrongGradientAndTheElement) {
  op("mean", {{"X", "b"}}, "loss");
  append_gradients();
  // a factor that is not in the loss
  op("scale", {{"X", "w@GRAD"}}, "w@GRAD").set_float("scale", 1.01F).set_int("op_role", 1);
  const auto report = check();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->ok());
  EXPECT_NEAR(report->params[0].worst.error, 0.0099, 1e-4);
  EXPECT_NEAR(report->params[0].worst.analytical / report->params[0].worst.numerical, 1.01, 1e-6);
}

TEST_F(CheckGradientsTest, LeavesUpdatesOut) {
  op("mean", {{"X", "b"}}, "loss");
  append_gradients();
  VarSpec rate = VarSpec::tensor(DType::kFloat32, {1});
  rate.persistable = true;
  program_->root().declare("rate", rate);
  scope_.local("rate") = tensor_value({1}, {100});
  Op& update = program_->root().append_op("sgd");
  update.set_input("Param", "w").set_input("Grad", "w@GRAD").set_input("LearningRate", "rate");
  update.set_output("ParamOut", "w").set_int("op_role", 2);
  const auto report = check();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->ok());
}

TEST_F(CheckGradientsTest, SaysWhereThereIsNoGradient) {
  op("mean", {{"X", "b"}}, "loss");
  append_gradients();
  for (Op* const each : program_->root().op_vector())
    if (each->writes("w@GRAD")) program_->root().erase(*each);
  options_.loss = "loss";
  const auto report = check();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->ok());
  EXPECT_EQ(report->params[0].grad, "");
  EXPECT_EQ(report->params[0].worst.analytical, 0);
}

TEST_F(CheckGradientsTest, HoldsVarsConstantThatNoGradientFlowsThrough) {
  VarSpec mask = program_->root().find_var("mask")->spec();
  mask.stop_gradient = true;
  program_->root().declare("mask", mask);
  op("sigmoid", {{"X", "a"}}, "mask");
  op("elementwise_mul", {{"X", "b"}, {"Y", "mask"}}, "c");
  op("mean", {{"X", "c"}}, "loss");
  auto report = check();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->ok());
  EXPECT_THAT(report->notes, ElementsAre(HasSubstr("'mask' is held constant")));
  // the same var given by the caller
  mask.stop_gradient = false;
  program_->root().declare("mask", mask);
  options_.no_grad = {"mask"};
  report = check();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->ok());
}

TEST_F(CheckGradientsTest, DrawsTheSameRandomNumbersInEveryRun) {
  Op& dropout = op("dropout", {{"X", "b"}}, "c");
  dropout.set_output("Mask", "drawn").set_float("dropout_prob", 0.5F);
  VarSpec drawn = VarSpec::tensor(DType::kUint8, {2, 2});
  drawn.stop_gradient = true;
  program_->root().declare("drawn", drawn);
  op("mean", {{"X", "c"}}, "loss");
  const auto report = check();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->ok());
}

TEST_F(CheckGradientsTest, RunsInTheDeclaredTypesWhereThatIsAsked) {
  op("mean", {{"X", "b"}}, "loss");
  options_.in_float64 = false;
  const auto report = check();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->ok());
  const GradientSample& worst = report->params[0].worst;
  EXPECT_GT(std::abs(worst.analytical - worst.numerical), 1e-9) << "float32 has few digits";
}

TEST_F(CheckGradientsTest, NamesWhatIsNotThere) {
  op("mean", {{"X", "b"}}, "loss");
  options_.params = {"v"};
  EXPECT_THAT(check().status().message(),
              HasSubstr("'v' is not a parameter that the loss depends on"));
  options_.params.clear();
  options_.loss.clear();
  EXPECT_THAT(check().status().message(), HasSubstr("the program has no gradients; name the loss"));
  append_gradients();
  options_.loss = "other";
  EXPECT_THAT(check().status().message(), HasSubstr("the program has gradients of loss only"));
}

TEST_F(CheckGradientsTest, RefusesProgramsOfJobs) {
  op("mean", {{"X", "b"}}, "loss");
  append_gradients();
  program_->root().append_op("send").set_input("X", "w@GRAD").set_int("op_role", 4);
  const Status status = check().status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.location().op_type, "send");
}

TEST(InFloat64Test, ConvertsDeclarationsAndTypeAttributes) {
  const auto runtime = standard_runtime();
  const auto program = Program::create();
  Block& block = program->root();
  block.declare("x", VarSpec::tensor(DType::kFloat32, {2}));
  block.declare("i", VarSpec::tensor(DType::kInt64, {2}));
  Op& fill = block.append_op("fill_constant").set_output("Out", "x");
  Op& cast = block.append_op("cast").set_input("X", "i").set_output("Out", "x");
  cast.set_int("in_dtype", 3).set_int("out_dtype", 5);
  declare_in_float64(*runtime->ops, *program);
  EXPECT_EQ(block.find_var("x")->dtype(), DType::kFloat64);
  EXPECT_EQ(block.find_var("i")->dtype(), DType::kInt64);
  ASSERT_NE(fill.find_attr("dtype"), nullptr) << "its default is float32";
  EXPECT_EQ(fill.find_attr("dtype")->integer(), 6);
  EXPECT_EQ(cast.find_attr("in_dtype")->integer(), 3);
  EXPECT_EQ(cast.find_attr("out_dtype")->integer(), 6);
}

TEST(SampleElementsTest, TakesHalfWhereTheGradientIsNotZero) {
  std::vector<double> gradient(1000, 0);
  gradient[7] = 1;
  gradient[900] = -1;
  const std::vector<int64_t> chosen = sample_elements(gradient, 6, 3);
  EXPECT_EQ(chosen.size(), 6U);
  const auto hits =
      std::count_if(chosen.begin(), chosen.end(), [](int64_t at) { return at == 7 || at == 900; });
  EXPECT_GE(hits, 1);
  EXPECT_EQ(chosen, sample_elements(gradient, 6, 3)) << "the same seed, the same choice";
  EXPECT_EQ(sample_elements(gradient, 0, 3).size(), 1000U);
  EXPECT_THAT(sample_elements({}, 5, 3), IsEmpty());
  EXPECT_THAT(indices_of(17, {3, 2, 4}), ElementsAre(2, 0, 1));
}

// Nets with loops and branches, generated with the original
// (tests/data/backward/control_flow_nets.py).
struct ControlFlowNet {
  const char* name;
  // Wrong in the original and in millrace, but reported: the gradient of a state of recurrent is
  // lost, or a value that a gradient op needs is overwritten before.
  bool is_lost = false;
};

class ControlFlowGradientsTest : public ::testing::TestWithParam<ControlFlowNet> {
 protected:
  void SetUp() override {
    const std::string base = std::string("tests/data/backward/control_flow/") + GetParam().name;
    auto program = read_program(base + ".forward.pb", {});
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    program_ = *std::move(program);
    options_.loss = program_->root().back().output_names().front().str();
    auto values = io::read_values(base + ".npz");
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    for (auto& [name, value] : *values) {
      const auto [group, var] = llvm::StringRef(name).split('/');
      if (group == "feed") feeds_[var.str()] = std::move(value);
      if (group == "param") scope_.local(var) = std::move(value);
      if (group == "numerical") numerical_[var.str()] = std::move(value);
    }
  }

  std::shared_ptr<const Runtime> runtime_ = standard_runtime();
  std::unique_ptr<Program> program_;
  Scope scope_;
  NamedValues feeds_;
  NamedValues numerical_;
  GradientCheckOptions options_;
};

TEST_P(ControlFlowGradientsTest, AreThoseOfCentralDifferences) {
  for (const bool optimize : {false, true}) {
    options_.optimize = optimize;
    options_.samples = 0;
    const auto report = check_gradients(runtime_, *program_, scope_, feeds_, options_);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->ok(), !GetParam().is_lost);
    EXPECT_EQ(report->notes.empty(), !GetParam().is_lost);
    for (const ParamCheck& check : report->params) {
      if (check.ok) continue;
      EXPECT_TRUE(GetParam().is_lost)
          << check.param << ": " << check.worst.analytical << " " << check.worst.numerical;
    }
  }
}

// Central differences of the forward run equal those of the original, so they are a valid
// reference.
TEST_P(ControlFlowGradientsTest, AreThoseOfTheOriginalsForwardProgram) {
  options_.samples = 0;
  const auto report = check_gradients(runtime_, *program_, scope_, feeds_, options_);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  for (const ParamCheck& check : report->params) {
    const Tensor& wanted = *numerical_.at(check.param).get_if<Tensor>();
    if (check.worst.is_direction) continue;
    int64_t at = 0;
    for (size_t i = 0; i < check.worst.at.size(); ++i)
      at = at * wanted.dim(static_cast<int64_t>(i)) + check.worst.at[i];
    EXPECT_NEAR(check.worst.numerical, wanted.data<double>()[at], 1e-8) << check.param;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Nets, ControlFlowGradientsTest,
    ::testing::Values(
        ControlFlowNet{"two_memories"}, ControlFlowNet{"read_twice"},
        ControlFlowNet{"nested_loops"}, ControlFlowNet{"inner_reads_outer_memory"},
        ControlFlowNet{"cond_in_loop"}, ControlFlowNet{"cond_writes_memory"},
        ControlFlowNet{"cond_reads_memory"}, ControlFlowNet{"carried_by_assign"},
        ControlFlowNet{"carried_value_overwritten"}, ControlFlowNet{"carried_chain"},
        ControlFlowNet{"never_fetched"}, ControlFlowNet{"recurrent_two_states"},
        ControlFlowNet{"recurrent_state_unused", true}, ControlFlowNet{"recurrent_state_apart"},
        ControlFlowNet{"recurrent_last_state"}, ControlFlowNet{"recurrent_output_unused"},
        ControlFlowNet{"cond_in_recurrent"}, ControlFlowNet{"recurrent_in_loop"},
        ControlFlowNet{"cond_unused_output"}, ControlFlowNet{"nested_cond"},
        ControlFlowNet{"loop_in_cond"}, ControlFlowNet{"while_loop_api"},
        ControlFlowNet{"loop_only_inside_written"}, ControlFlowNet{"recurrent_states_used", true},
        ControlFlowNet{"recurrent_states_and_last", true},
        ControlFlowNet{"recurrent_outputs_read_inside"},
        ControlFlowNet{"recurrent_swapped_states", true},
        ControlFlowNet{"recurrent_one_state_twice", true},
        ControlFlowNet{"recurrent_states_in_loop", true}, ControlFlowNet{"branch_assigns"},
        ControlFlowNet{"branch_assigns_not_taken"}, ControlFlowNet{"branch_replaces"},
        ControlFlowNet{"branch_replaces_not_taken"}, ControlFlowNet{"branch_puts_back"},
        ControlFlowNet{"branch_overwrites_used"}, ControlFlowNet{"branch_within_branch"},
        ControlFlowNet{"switch_assigns"}, ControlFlowNet{"switch_fills"},
        ControlFlowNet{"assigned_twice"}, ControlFlowNet{"assigned_unused"},
        ControlFlowNet{"in_place_square"}, ControlFlowNet{"in_place_on_feed"},
        ControlFlowNet{"increment_apart"}, ControlFlowNet{"loop_uses_assigned"},
        ControlFlowNet{"loop_assigns_twice"}, ControlFlowNet{"loop_scales_in_place"},
        ControlFlowNet{"loop_factor_in_place"}, ControlFlowNet{"loop_between_writes"},
        ControlFlowNet{"branch_in_loop_assigns"}, ControlFlowNet{"loop_in_branch_assigns"},
        ControlFlowNet{"loops_carry"}, ControlFlowNet{"cond_reads_carried"},
        ControlFlowNet{"recurrent_reads_carried", true}, ControlFlowNet{"branch_swaps"},
        ControlFlowNet{"memory_read_outside"}, ControlFlowNet{"memory_two_back"},
        ControlFlowNet{"memory_in_one_slot"}, ControlFlowNet{"two_losses_of_loops"},
        ControlFlowNet{"two_losses_of_carried"}, ControlFlowNet{"two_losses_of_branches"},
        ControlFlowNet{"two_losses_of_recurrence"}),
    [](const auto& net) { return std::string(net.param.name); });

// A program with the gradients of two losses: those of the second do not depend on values that the
// first has changed, such as counters that were decremented.
class TwoLossesTest : public ControlFlowGradientsTest {};

TEST_P(TwoLossesTest, HaveTheGradientsOfBoth) {
  std::vector<std::string> losses;
  for (const Op& op : program_->root().ops())
    if (op.type() == "reduce_mean" || op.type() == "mean")
      losses.push_back(op.output_names().front().str());
  ASSERT_GE(losses.size(), 2U);
  losses.erase(losses.begin(), losses.end() - 2);
  for (size_t i = 0; i < losses.size(); ++i) {
    ops::BackwardRequest request;
    request.loss = losses[i];
    request.earlier_calls = static_cast<int>(i);
    const auto pairs = ops::append_backward(*runtime_->ops, *program_, request);
    ASSERT_TRUE(pairs.ok()) << pairs.status().to_string();
  }
  const Status status = ops::check_program(*runtime_->ops, *program_);
  EXPECT_TRUE(status.ok()) << status.to_string();
  options_.samples = 0;
  for (const std::string& loss : losses) {
    options_.loss = loss;
    const auto report = check_gradients(runtime_, *program_, scope_, feeds_, options_);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->notes.empty());
    EXPECT_EQ(report->losses, std::vector<std::string>{loss});
    for (const ParamCheck& check : report->params)
      EXPECT_TRUE(check.ok) << loss << " " << check.param << ": " << check.worst.analytical << " "
                            << check.worst.numerical;
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, TwoLossesTest,
                         ::testing::Values(ControlFlowNet{"two_losses_of_loops"},
                                           ControlFlowNet{"two_losses_of_carried"},
                                           ControlFlowNet{"two_losses_of_branches"}),
                         [](const auto& net) { return std::string(net.param.name); });

}  // namespace
}  // namespace millrace::executor
