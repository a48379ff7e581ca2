// Updates of several parameters in one op, compared with separate updates.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

struct Parameter {
  Dims dims;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> rows = {};  // of a sparse gradient; empty: it is dense
};

struct Rule {
  const char* type;
  std::vector<const char*> states = {};
  std::vector<const char*> powers;  // states of one element
  std::function<void(RunOp&)> single_attrs;
  std::function<void(RunOp&)> merged_attrs;
};

std::string out_of(llvm::StringRef slot) {
  return slot.str() + "Out";
}

void add_parameter(RunOp& op, const Rule& rule, const Parameter& p, int k) {
  const int64_t count = count_of(p.dims);
  op.in("Param", p.dims, waves(count, k), p.dtype);
  if (p.rows.empty()) {
    op.in("Grad", p.dims, waves(count, k + 0.5), p.dtype);
  } else {
    const Dims dims{static_cast<int64_t>(p.rows.size()), p.dims[1]};
    op.in("Grad", rows_value(p.rows, p.dims[0], dims, waves(count_of(dims), k + 0.5)));
  }
  for (const char* const state : rule.states) {
    std::vector<double> values = waves(count, k + 0.25);
    for (double& value : values) value *= value;  // second moments must not be negative
    op.in(state, p.dims, std::move(values), p.dtype);
  }
  for (const char* const power : rule.powers) op.in(power, {1}, {0.5 + 0.01 * k}, p.dtype);
}

void add_outputs(RunOp& op, const Rule& rule) {
  op.out_in_place("ParamOut", "Param");
  for (const char* const state : rule.states) op.out_in_place(out_of(state), state);
  for (const char* const power : rule.powers) op.out_in_place(out_of(power), power);
}

// All values of the merged op have the bits of the single ones.
void expect_same_bits(const Rule& rule, const std::vector<Parameter>& parameters) {
  RunOp merged(std::string("merged_") + rule.type);
  for (size_t k = 0; k < parameters.size(); ++k)
    add_parameter(merged, rule, parameters[k], static_cast<int>(k));
  merged.in("LearningRate", {1}, {0.1});
  add_outputs(merged, rule);
  rule.merged_attrs(merged);
  ASSERT_EQ(merged.run_text(), "ok") << rule.type;
  std::vector<const char*> slots{"Param"};
  slots.insert(slots.end(), rule.states.begin(), rule.states.end());
  slots.insert(slots.end(), rule.powers.begin(), rule.powers.end());
  for (size_t k = 0; k < parameters.size(); ++k) {
    RunOp single(rule.type);
    add_parameter(single, rule, parameters[k], static_cast<int>(k));
    single.in("LearningRate", {1}, {0.1});
    add_outputs(single, rule);
    rule.single_attrs(single);
    ASSERT_EQ(single.run_text(), "ok") << rule.type << " " << k;
    for (const std::string slot : slots) {
      EXPECT_EQ(merged.values(slot + std::to_string(k)), single.values(slot + "0"))
          << rule.type << " " << slot << " " << k;
    }
    EXPECT_NE(single.values("Param0"),
              numbers(tensor_value(parameters[k].dims, waves(count_of(parameters[k].dims), k),
                                   parameters[k].dtype)));
  }
}

std::vector<Rule> rules() {
  const auto none = [](RunOp&) {};
  const auto momentum = [](RunOp& op) { op.attr("mu", 0.9F).attr("use_nesterov", true); };
  const auto adam = [](RunOp& op) { op.attr("beta1", 0.8F).attr("epsilon", 1e-3F); };
  return {{"sgd", {}, {}, none, none},
          {"momentum", {"Velocity"}, {}, momentum, momentum},
          {"adam", {"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow"}, adam, adam}};
}

TEST(MergedUpdates, SmallAndLargeParametersGetTheBitsOfSingleUpdates) {
  for (const Rule& rule : rules()) expect_same_bits(rule, {{{3}}, {{40, 50}}, {{2, 5}}, {{1025}}});
}

TEST(MergedUpdates, SoDoOtherTypesAndSparseGradients) {
  for (const Rule& rule : rules())
    expect_same_bits(rule, {{{7}, kF64}, {{6, 2}, DType::kFloat32, {4, 1, 4}}, {{5}}});
}

TEST(MergedUpdates, DecayIsGivenForEachParameter) {
  expect_same_bits({"momentum",
                    {"Velocity"},
                    {},
                    [](RunOp& op) {
                      op.attr("mu", 0.9F)
                          .attr("regularization_method", std::string("l2_decay"))
                          .attr("regularization_coeff", 0.3F);
                    },
                    [](RunOp& op) {
                      op.attr("mu", 0.9F)
                          .attr("regularization_method",
                                std::vector<std::string>{"l2_decay", "l2_decay"})
                          .attr("regularization_coeff", std::vector<float>{0.3F, 0.3F});
                    }},
                   {{{3}}, {{2000}}});
}

TEST(MergedUpdates, AnErrorNamesItsParameter) {
  for (const Rule& rule : rules()) {
    RunOp op(std::string("merged_") + rule.type);
    add_parameter(op, rule, {{2}}, 0);
    add_parameter(op, rule, {{3}}, 1);
    op.feed("Grad1", {4},
            {1, 2, 3, 4});  // the number of rows of the others: checked before the run
    op.in("LearningRate", {1}, {0.1});
    add_outputs(op, rule);
    rule.merged_attrs(op);
    const Status status = op.run();
    ASSERT_FALSE(status.ok()) << rule.type;
    EXPECT_EQ(status.location().slot, "Param") << status.to_string();
    EXPECT_EQ(status.location().slot_index, 1) << status.to_string();
    EXPECT_EQ(status.location().var, "Param1") << status.to_string();
  }
}

TEST(Updates, OfSixteenBitsNeedTheCopyThatTheyAskFor) {
  for (const bool merged : {false, true}) {
    RunOp op(merged ? "merged_momentum" : "momentum");
    op.in("Param", {2}, {1, 2}, DType::kFloat16).in("Grad", {2}, {1, 1}, DType::kFloat16);
    op.in("Velocity", {2}, {0, 0}).in("LearningRate", {1}, {0.1});
    op.attr("mu", 0.9F).attr("multi_precision", true);
    op.out_in_place("ParamOut", "Param").out_in_place("VelocityOut", "Velocity");
    EXPECT_THAT(op.run_text(),
                ::testing::HasSubstr("'multi_precision' is set, and MasterParam is missing"));
  }
}

// Another method would decay nothing.
TEST(Updates, MergedMomentumRefusesAnUnknownMethod) {
  RunOp op("merged_momentum");
  op.in("Param", {2}, {1, 2}).in("Grad", {2}, {1, 1}).in("Velocity", {2}, {0, 0});
  op.in("LearningRate", {1}, {0.1}).attr("mu", 0.9F);
  op.attr("regularization_method", std::vector<std::string>{"l1_decay"});
  op.attr("regularization_coeff", std::vector<float>{0.5F});
  op.out_in_place("ParamOut", "Param").out_in_place("VelocityOut", "Velocity");
  EXPECT_THAT(op.run_text(), ::testing::HasSubstr("names 'l1_decay' for parameter 0"));
}

}  // namespace
}  // namespace millrace::kernels
