// Errors are kept with the line of the call; loops and branches have the blocks they need.
#include "frontend/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/program.h"
#include "frontend/layers.h"
#include "ops/verify.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Status verified(const Network& net) {
  return ops::check_program(*ops::standard_registry(), net.main());
}

TEST(Network, InfersShapesWhileItIsBuilt) {
  Network net;
  const VarRef x = net.data("x", {-1, 3, 8, 8});
  const VarRef h = layers::conv2d(x, 4, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}});
  EXPECT_THAT(h.dims(), ElementsAre(-1, 4, 4, 4));
  EXPECT_THAT(layers::fc(h, 5).dims(), ElementsAre(-1, 5));
  EXPECT_THAT(layers::reshape(h, {0, -1}).dims(), ElementsAre(-1, 64));
  EXPECT_THAT(layers::transpose(h, {0, 2, 3, 1}).dims(), ElementsAre(-1, 4, 4, 4));
  EXPECT_TRUE(net.status().ok()) << net.status().to_string();
  EXPECT_TRUE(verified(net).ok()) << verified(net).to_string();
}

TEST(Network, NamesLayersAsTheOriginalDoes) {
  Network net;
  const VarRef x = net.data("x", {-1, 4});
  EXPECT_EQ(layers::fc(x, 2, {.act = "relu"}).name(), "fc_0.tmp_2");
  EXPECT_EQ(layers::fc({x, x}, 2).name(), "fc_1.tmp_3");
  EXPECT_NE(net.main().root().find_var("fc_1.w_1"), nullptr);
  EXPECT_EQ(layers::relu(x).name(), "relu_0.tmp_0");
}

TEST(Network, RepeatsABodyOverSteps) {
  Network net;
  const VarRef x = net.data("x", {7, -1, 4});
  const VarRef start = layers::fc(net.data("h", {-1, 4}), 4);
  const auto [states, outs] =
      layers::recurrent({x}, start, [&](const layers::Vars& at, const VarRef& before) {
        EXPECT_THAT(at[0].dims(), ElementsAre(-1, 4));
        const VarRef h = layers::tanh(layers::fc({at[0], before}, 4));
        return layers::RecurrentStep{layers::assign(h), layers::fc(h, 2)};
      });
  EXPECT_THAT(states.dims(), ElementsAre(-1, -1, 4));
  EXPECT_THAT(outs.dims(), ElementsAre(-1, -1, 2));
  EXPECT_TRUE(net.status().ok()) << net.status().to_string();
  EXPECT_TRUE(verified(net).ok()) << verified(net).to_string();
  layers::recurrent({x}, start,
                    [](const layers::Vars&, const VarRef&) { return layers::RecurrentStep{}; });
  EXPECT_THAT(net.status().message(), HasSubstr("recurrent: body: expected a state and an out"));
}

TEST(Network, SaysWhichLineIsWrong) {
  Network net;
  const VarRef x = net.data("x", {-1, 4});
  const VarRef bad = layers::elementwise_add(x, net.data("y", {-1, 5}));
  const int line = __LINE__ - 1;
  EXPECT_FALSE(bad.ok());
  EXPECT_THAT(net.status().message(), HasSubstr("elementwise_add: "));
  EXPECT_THAT(net.status().location().source,
              HasSubstr("network_test.cc\", line " + std::to_string(line)));
}

TEST(Network, KeepsTheFirstMistakeAndDoesNothingMore) {
  Network net;
  const VarRef x = net.data("x", {-1, -1});
  const VarRef h = layers::fc(x, 3);
  const size_t ops = net.main().root().op_count();
  layers::mean(layers::fc(h, 2));
  EXPECT_EQ(net.main().root().op_count(), ops);
  EXPECT_THAT(net.status().message(),
              HasSubstr("fc: 'x': expected known dims after the first 1, found -1, -1"));
  EXPECT_FALSE(net.minimize(h).ok());
}

TEST(Network, RefusesAnUnknownActivation) {
  Network net;
  layers::fc(net.data("x", {-1, 4}), 3, {.act = "rellu"});
  EXPECT_THAT(net.status().message(), HasSubstr("fc: act: expected an activation, found 'rellu'"));
  EXPECT_THAT(net.status().hint(), HasSubstr("relu"));
}

TEST(Network, RefusesInputsOfAnotherNetwork) {
  Network a;
  Network b;
  layers::concat({a.data("x", {-1, 4}), b.data("y", {-1, 4})}, 1);
  EXPECT_THAT(a.status().message(), HasSubstr("belong to different networks"));
}

// Both networks have a var of the name.
TEST(Network, RefusesTheLossOfAnotherNetwork) {
  Network one;
  Network two;
  const VarRef loss = layers::mean(layers::fc(one.data("x", {-1, 2}), 1));
  layers::mean(layers::fc(two.data("x", {-1, 2}), 1));
  EXPECT_THAT(two.minimize(loss, {}).status().message(),
              HasSubstr("minimize: loss 'mean_0.tmp_0' belongs to a different network"));
}

TEST(Network, RefusesInputsThatAreNoVars) {
  Network net;
  const VarRef x = net.data("x", {-1, 2});
  layers::concat({x, VarRef()}, 1);
  EXPECT_THAT(net.status().message(), HasSubstr("concat: expected a var in place of an empty"));
  Network other;
  layers::recurrent({}, other.data("x", {-1, 2}),
                    [](const layers::Vars&, const VarRef&) { return layers::RecurrentStep{}; });
  EXPECT_THAT(other.status().message(), HasSubstr("expected a start and at least one sequence"));
}

TEST(Network, RefusesOptionsWithoutEffect) {
  Network net;
  const VarRef ids = net.data("ids", {-1, 1}, DType::kInt64);
  const VarRef table = net.parameter({5, 2}, {.name = "t"});
  EXPECT_TRUE(layers::lookup_table(ids, table).ok());
  layers::lookup_table(ids, table, {.param = {.learning_rate = 2}});
  EXPECT_THAT(net.status().message(), HasSubstr("options.param has no effect"));
}

TEST(Network, RefusesAnIntegerOfMoreThan64Bits) {
  Network net;
  EXPECT_TRUE(layers::fill_constant(net, {1}, DType::kInt64, -9223372036854775808.0).ok());
  layers::fill_constant(net, {1}, DType::kInt64, 9223372036854775808.0);
  EXPECT_THAT(net.status().message(), HasSubstr("value: expected an integer of 64 bits"));
}

TEST(Network, RefusesAParameterOfAnotherShapeUnderOneName) {
  Network net;
  const VarRef x = net.data("x", {-1, 4});
  layers::fc(x, 3, {.param = {.name = "w"}});
  EXPECT_TRUE(net.status().ok()) << "shared parameters are fine";
  layers::fc(x, 5, {.param = {.name = "w"}});
  EXPECT_THAT(net.status().message(), HasSubstr("'w' is already declared with another shape"));
}

TEST(Network, MarksOpsWithTheLineOfTheirCall) {
  Network net;
  layers::relu(net.data("x", {-1, 4}));
  EXPECT_THAT(source_line(net.main().root().back()), HasSubstr("network_test.cc"));
}

TEST(Network, HandsOverWhatItKnowsOfParameters) {
  Network net;
  const VarRef x = net.data("x", {-1, 4});
  const VarRef h = layers::fc(x, 3, {.param = {.learning_rate = 0.5}, .has_bias = false});
  const VarRef loss = layers::mean(layers::fc(h, 1, {.param = {.trainable = false}}));
  const auto training = net.minimize(loss, {.method = Momentum{}});
  ASSERT_TRUE(training.ok()) << training.status().to_string();
  EXPECT_THAT(training->param_grads, ElementsAre(std::pair("fc_0.w_0", "fc_0.w_0@GRAD"),
                                                 std::pair("fc_1.b_0", "fc_1.b_0@GRAD")));
  EXPECT_EQ(net.main().root().find_var("tmp_0")->name(), "tmp_0") << "the rate of fc_0.w_0";
  EXPECT_TRUE(verified(net).ok()) << verified(net).to_string();
}

TEST(Network, LoopsOverABlockThatSaysWhatItReadsAndWrites) {
  Network net;
  const VarRef x = net.data("x", {-1, 4});
  const VarRef i = layers::fill_constant(net, {1}, DType::kInt64, 0);
  const VarRef n = layers::fill_constant(net, {1}, DType::kInt64, 3);
  const VarRef h = layers::assign(x);
  const VarRef more = layers::less_than(i, n);
  layers::while_loop(more, [&] {
    layers::assign(layers::tanh(h), h);
    layers::increment(i);
    layers::less_than(i, n, more);
  });
  ASSERT_TRUE(net.status().ok()) << net.status().to_string();
  const Op& loop = net.main().root().back();
  EXPECT_THAT(loop.output("Out"), ElementsAre(h.name(), i.name(), more.name()));
  EXPECT_THAT(loop.input("X"), ElementsAre(h.name(), i.name(), n.name()));
  EXPECT_TRUE(verified(net).ok()) << verified(net).to_string();
}

TEST(Network, RefusesALoopThatDoesNotEnd) {
  Network net;
  const VarRef i = layers::fill_constant(net, {1}, DType::kInt64, 0);
  const VarRef more = layers::less_than(i, i);
  layers::while_loop(more, [&] { layers::increment(i); });
  EXPECT_THAT(net.status().message(), HasSubstr("while: body: expected an op that updates"));
}

TEST(Network, ChoosesBetweenBranches) {
  Network net;
  const VarRef x = net.data("x", {-1, 4});
  const VarRef zero = layers::fill_constant(net, {}, DType::kFloat32, 0);
  const VarRef flag = layers::less_than(layers::mean(x), zero);
  const VarRef y = layers::cond(
      flag, [&] { return layers::fc(x, 2); }, [&] { return layers::fc(x, 2, {.act = "tanh"}); });
  EXPECT_THAT(y.dims(), ElementsAre(-1, 2));
  EXPECT_EQ(net.main().root().back().type(), "select_input");
  EXPECT_TRUE(net.minimize(layers::mean(y)).ok()) << net.status().to_string();
  EXPECT_TRUE(verified(net).ok()) << verified(net).to_string();
}

TEST(Network, RefusesAVarOfABlockThatHasEnded) {
  Network net;
  const VarRef x = net.data("x", {-1, 4});
  const VarRef flag = layers::less_than(layers::mean(x), layers::mean(x));
  VarRef inner;
  layers::cond(
      flag, [&] { return inner = layers::relu(x); }, [&] { return layers::tanh(x); });
  layers::relu(inner);
  EXPECT_THAT(net.status().message(), HasSubstr("is a var of a block that has ended"));
}

TEST(Network, AppendsAnyOp) {
  Network net;
  const VarRef x = net.data("x", {-1, 4});
  const layers::Vars parts = layers::append(
      net, {"split", {{"X", {x}}}, {"Out"}, {{"axis", int32_t{1}}, {"num", int32_t{1}}}});
  EXPECT_THAT(parts[0].dims(), ElementsAre(-1, 4)) << net.status().to_string();
  layers::append(net, {"splitt", {{"X", {x}}}, {"Out"}});
  EXPECT_THAT(net.status().message(), HasSubstr("splitt: unknown op type"));
}

}  // namespace
}  // namespace millrace
