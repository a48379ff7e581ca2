#include "executor/optimize.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/ADT/STLExtras.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/text_form/parse.h"
#include "ops/backward/append_backward.h"
#include "tests/executor/op_types.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;

// y = relu(x w + b), with x w in t and the sum in u
std::unique_ptr<Program> layer() {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"x", "t", "u", "y"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 2}));
  for (const auto& [name, dims] : {std::pair{"w", Dims{2, 2}}, {"b", Dims{2}}}) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
    spec.persistable = true;
    block.declare(name, spec);
  }
  block.append_op("mul").set_input("X", "x").set_input("Y", "w").set_output("Out", "t");
  block.append_op("elementwise_add").set_input("X", "t").set_input("Y", "b").set_output("Out", "u");
  block.append_op("relu").set_input("X", "u").set_output("Out", "y");
  return program;
}

class OptimizeTest : public ::testing::Test {
 protected:
  OptimizeTest() {
    scope_.local("w") = tensor_value({2, 2}, {1, -1, 2, -2});
    scope_.local("b") = tensor_value({2}, {10, 20});
    feeds_["x"] = tensor_value({1, 2}, {3, 4});
  }
  std::unique_ptr<PreparedProgram> prepare(bool optimize) {
    auto prepared = Executor(standard_runtime(), {.optimize = optimize}).prepare(*program_, scope_);
    EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
    return std::move(prepared).value();
  }

  std::unique_ptr<Program> program_ = layer();
  Scope scope_;
  NamedValues feeds_;
  std::vector<Value> results_;
};

TEST_F(OptimizeTest, RunsARewrittenProgramUnlessToldOtherwise) {
  const auto prepared = prepare(true);
  EXPECT_THAT(op_types(prepared->program()), ElementsAre("fc"));
  ASSERT_TRUE(prepared->run(feeds_, {"y"}, results_).ok());
  EXPECT_THAT(floats(results_[0]), ElementsAre(21, 9));
  EXPECT_THAT(op_types(*program_), ElementsAre("mul", "elementwise_add", "relu"));

  const auto plain = prepare(false);
  EXPECT_THAT(op_types(plain->program()), ElementsAre("mul", "elementwise_add", "relu"));
  ASSERT_TRUE(plain->run(feeds_, {"y"}, results_).ok());
  EXPECT_THAT(floats(results_[0]), ElementsAre(21, 9));
}

TEST_F(OptimizeTest, BringsBackAVarThatIsFetched) {
  const auto prepared = prepare(true);
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(prepared->run(feeds_, {"y"}, results_).ok());
    ASSERT_TRUE(prepared->run(feeds_, {"u", "y"}, results_).ok());
    EXPECT_THAT(floats(results_[0]), ElementsAre(21, 9));
    EXPECT_THAT(op_types(prepared->program()), ElementsAre("fc", "relu"));
  }
  ASSERT_TRUE(prepared->run(feeds_, {"t"}, results_).ok());
  EXPECT_THAT(floats(results_[0]), ElementsAre(11, -11));
  EXPECT_EQ(prepared->run(feeds_, {"z"}, results_).code(), StatusCode::kNotFound);
}

TEST_F(OptimizeTest, NamesPlacesOfTheOriginalProgramInErrors) {
  // a leading op that is not removed, so that indices differ
  Block& block = program_->root();
  block.declare("v", VarSpec::tensor(DType::kFloat32, {-1, 2}));
  block.append_op("scale").set_input("X", "y").set_output("Out", "v");
  scope_.local("w") = tensor_value({3, 2}, {1, 1, 1, 1, 1, 1});
  const auto prepared = prepare(true);
  ASSERT_THAT(op_types(prepared->program()), ElementsAre("fc", "scale"));
  const Status status = prepared->run(feeds_, {"v"}, results_);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.location().op, 2) << status.to_string();
  EXPECT_EQ(status.location().op_type, "relu");
  EXPECT_THAT(status.to_string(), ::testing::HasSubstr("runs as part of a fc"));

  scope_.local("w") = tensor_value({2, 2}, {1, 1, 1, 1});
  program_->root().back().set_input("X", "missing");
  block.declare("missing", VarSpec::tensor(DType::kFloat32, {-1, 2}));
  const auto other = prepare(true);
  ASSERT_THAT(op_types(other->program()), ElementsAre("fc", "scale"));
  const Status missing = other->run(feeds_, {"v"}, results_);
  EXPECT_EQ(missing.location().op, 3) << missing.to_string();
  EXPECT_EQ(missing.location().op_type, "scale");
  EXPECT_EQ(missing.location().var, "missing");
}

TEST_F(OptimizeTest, HasOneListForInferenceAndOneForTraining) {
  const auto passes = [&] {
    std::vector<std::string> names;
    for (const auto& step : optimization_pipeline(*program_, {"y"}).steps) {
      names.push_back(step.pass);
      EXPECT_EQ(step.options,
                (std::vector<transpiler::PipelineOption>{{"keep", std::vector<std::string>{"y"}}}));
    }
    return names;
  };
  EXPECT_THAT(passes(), ::testing::Contains("fuse-fc"));
  program_->root().append_op("scale").set_input("X", "w").set_output("Out", "w");
  EXPECT_THAT(passes(), ::testing::Contains("fuse-fc"));
}

TEST_F(OptimizeTest, PassesAreCheckedOnlyIfAsked) {
  const auto runtime = standard_runtime();
  const ops::OpRegistry& registry = *runtime->ops;
  const transpiler::PassManagerOptions plain = pass_options(*program_, registry, false);
  EXPECT_FALSE(plain.check_changes);
  EXPECT_FALSE(plain.verify);
  const transpiler::PassManagerOptions checked = pass_options(*program_, registry, true);
  EXPECT_TRUE(checked.check_changes);
  ASSERT_TRUE(checked.verify);
  EXPECT_TRUE(checked.verify(*program_).ok());
  program_->root().front().set_input("X", "undeclared");
  EXPECT_FALSE(checked.verify(*program_).ok());
  // a program that never verified says nothing about the passes
  EXPECT_FALSE(pass_options(*program_, registry, true).verify);
}

TEST_F(OptimizeTest, RewritesUnderChecks) {
  const auto runtime = standard_runtime();
  const auto changed = optimize(*program_, *runtime->ops, {"y"}, {.verify_passes = true});
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  EXPECT_TRUE(*changed);
  EXPECT_THAT(op_types(*program_), ElementsAre("fc"));
}

TEST_F(OptimizeTest, RoundsTheFactorsOfProductsIfAsked) {
  scope_.local("b") = tensor_value({2}, {0, 0});
  feeds_["x"] = tensor_value({1, 2}, {1.001F, 0});
  for (const bool fuse : {true, false}) {
    auto prepared = Executor(standard_runtime(), {.optimize = fuse, .bf16_products = true})
                        .prepare(*program_, scope_);
    ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
    const Op& product = prepared.value()->program().root().front();
    EXPECT_EQ(product.type(), fuse ? "fc" : "mul");
    ASSERT_NE(product.find_attr("mkldnn_data_type"), nullptr);
    EXPECT_EQ(product.find_attr("mkldnn_data_type")->string(), "bfloat16");
    ASSERT_TRUE(prepared.value()->run(feeds_, {"y"}, results_).ok());
    EXPECT_NEAR(floats(results_[0])[0], 1,
                0.0011);  // 1.001, or 1 on a CPU with bfloat16 products
  }
}

// y = batch_norm(conv2d(x, w)) with given statistics
std::unique_ptr<Program> normalized() {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"x", "c", "y"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 1, 1, 2}));
  for (const auto& [name, dims] : {std::pair{"w", Dims{1, 1, 1, 1}},
                                   {"s", Dims{1}},
                                   {"h", Dims{1}},
                                   {"m", Dims{1}},
                                   {"v", Dims{1}}}) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
    spec.persistable = true;
    block.declare(name, spec);
  }
  block.append_op("conv2d")
      .set_input("Input", "x")
      .set_input("Filter", "w")
      .set_output("Output", "c");
  Op& norm = block.append_op("batch_norm");
  norm.set_input("X", "c").set_input("Scale", "s").set_input("Bias", "h").set_input("Mean", "m");
  norm.set_input("Variance", "v").set_output("Y", "y").set_output("MeanOut", "m");
  norm.set_output("VarianceOut", "v").set_bool("is_test", true).set_float("epsilon", 0);
  return program;
}

TEST(ReleaseFolded, GivesUpFiltersOnlyIfAsked) {
  const auto program = normalized();
  for (const bool release : {false, true}) {
    Scope scope;
    scope.local("w") = tensor_value({1, 1, 1, 1}, {2});
    for (const auto& [name, value] : {std::pair{"s", 3.0F}, {"h", 1.0F}, {"m", 4.0F}, {"v", 4.0F}})
      scope.local(name) = tensor_value({1}, {value});
    NamedValues feeds;
    feeds["x"] = tensor_value({1, 1, 1, 2}, {2, 3});
    auto prepared =
        Executor(standard_runtime(), {.release_folded = release}).prepare(*program, scope);
    ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
    std::vector<Value> results;
    for (int run = 0; run < 2; ++run) {
      const Status status = prepared.value()->run(feeds, {"y"}, results);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_THAT(floats(results[0]), ElementsAre(1, 4));
    }
    const Status filter = prepared.value()->run(feeds, {"w"}, results);
    if (!release) {
      ASSERT_TRUE(filter.ok()) << filter.to_string();
      EXPECT_THAT(floats(results[0]), ElementsAre(2));
      continue;
    }
    EXPECT_EQ(filter.code(), StatusCode::kExecution);
    EXPECT_THAT(filter.to_string(), ::testing::HasSubstr("released"));
    // other statistics would need the unfolded filter
    scope.local("v") = tensor_value({1}, {1});
    const Status changed = prepared.value()->run(feeds, {"y"}, results);
    EXPECT_EQ(changed.code(), StatusCode::kExecution) << changed.to_string();
  }
}

TEST(ReleaseFolded, LeavesMemoryAloneThatSomebodyShares) {
  const auto program = normalized();
  Scope scope;
  Value filter = tensor_value({1, 1, 1, 1}, {2});
  const Tensor view = filter.get_if<Tensor>()->share();
  scope.local("w") = std::move(filter);
  for (const auto& [name, value] : {std::pair{"s", 3.0F}, {"h", 1.0F}, {"m", 4.0F}, {"v", 4.0F}})
    scope.local(name) = tensor_value({1}, {value});
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 1, 1, 2}, {2, 3});
  auto prepared = Executor(standard_runtime(), {.release_folded = true}).prepare(*program, scope);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  std::vector<Value> results;
  ASSERT_TRUE(prepared.value()->run(feeds, {"y"}, results).ok());
  EXPECT_THAT(floats(results[0]), ElementsAre(1, 4));
  EXPECT_EQ(view.data<float>()[0], 2);
}

// Two layers, with an attention over two heads between them, and the mean of the result.
constexpr const char* kOptimizeNet = R"(# millrace program 1

block 0 {
  var x: f32(-1, 3, 4)
  var mask: f32(-1, 1, 1, 3) stop_gradient
  param w: f32(4, 4)
  param b: f32(4)
  param w2: f32(4, 4)
  param b2: f32(4)
  var t: f32(-1, 3, 4)
  var u: f32(-1, 3, 4)
  var y: f32(-1, 3, 4)
  var y4: f32(-1, 3, 2, 2)
  var y4x: f32(0, -1, 3, 4)
  var yt: f32(-1, 2, 3, 2)
  var ytx: f32(0, -1, 3, 2, 2)
  var k4: f32(-1, 3, 2, 2)
  var k4x: f32(0, -1, 3, 4)
  var kt: f32(-1, 2, 3, 2)
  var ktx: f32(0, -1, 3, 2, 2)
  var v4: f32(-1, 3, 2, 2)
  var v4x: f32(0, -1, 3, 4)
  var vt: f32(-1, 2, 3, 2)
  var vtx: f32(0, -1, 3, 2, 2)
  var q: f32(-1, 2, 3, 2)
  var s: f32(-1, 2, 3, 3)
  var sm: f32(-1, 2, 3, 3)
  var p: f32(-1, 2, 3, 3)
  var o: f32(-1, 2, 3, 2)
  var ot: f32(-1, 3, 2, 2)
  var otx: f32(0, -1, 2, 3, 2)
  var a: f32(-1, 3, 4)
  var ax: f32(0, -1, 3, 2, 2)
  var t2: f32(-1, 3, 4)
  var u2: f32(-1, 3, 4)
  var y2: f32(-1, 3, 4)
  var loss: f32(1)

  mul X=x Y=w -> Out=t {x_num_col_dims: 2}
  elementwise_add X=t Y=b -> Out=u {axis: 2}
  relu X=u -> Out=y
  reshape2 X=y -> Out=y4 XShape=y4x {shape: [0, 0, 2, 2]}
  transpose2 X=y4 -> Out=yt XShape=ytx {axis: [0, 2, 1, 3]}
  reshape2 X=y -> Out=k4 XShape=k4x {shape: [0, 0, 2, 2]}
  transpose2 X=k4 -> Out=kt XShape=ktx {axis: [0, 2, 1, 3]}
  reshape2 X=u -> Out=v4 XShape=v4x {shape: [0, 0, 2, 2]}
  transpose2 X=v4 -> Out=vt XShape=vtx {axis: [0, 2, 1, 3]}
  scale X=yt -> Out=q {scale: 0.5}
  matmul_v2 X=q Y=kt -> Out=s {trans_y: true}
  elementwise_add X=s Y=mask -> Out=sm
  softmax X=sm -> Out=p
  matmul_v2 X=p Y=vt -> Out=o
  transpose2 X=o -> Out=ot XShape=otx {axis: [0, 2, 1, 3]}
  reshape2 X=ot -> Out=a XShape=ax {shape: [0, 0, 4]}
  mul X=a Y=w2 -> Out=t2 {x_num_col_dims: 2}
  elementwise_add X=t2 Y=b2 -> Out=u2 {axis: 2}
  gelu X=u2 -> Out=y2
  mean X=y2 -> Out=loss
}
)";

// Gradients of a sum share memory as if both operands had its dims; if one is broadcast after all,
// the run reports it.
TEST(OptimizeTraining, FindsOutThatASumBroadcastsWhatIsDeclaredAlike) {
  const auto runtime = standard_runtime();
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"a", "b", "wax", "wby", "x", "y", "z"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 2}));
  block.declare("loss", VarSpec::tensor(DType::kFloat32, {1}));
  for (const auto& [w, in, out] : {std::tuple{"wa", "a", "x"}, {"wb", "b", "y"}}) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, {2, 2});
    spec.persistable = true;
    block.declare(w, spec);
    const std::string product = std::string(w) + out;
    block.append_op("mul").set_input("X", in).set_input("Y", w).set_output("Out", product);
    block.append_op("tanh").set_input("X", product).set_output("Out", out);
  }
  block.append_op("elementwise_add").set_input("X", "x").set_input("Y", "y").set_output("Out", "z");
  block.append_op("mean").set_input("X", "z").set_output("Out", "loss");
  ops::BackwardRequest request;
  request.loss = "loss";
  ASSERT_TRUE(ops::append_backward(*runtime->ops, *program, request).ok());
  block.append_op("scale").set_input("X", "wa").set_output("Out",
                                                           "wa");  // so that it counts as trained
  Scope scope;
  scope.local("wa") = tensor_value({2, 2}, {1, 2, 3, 4});
  scope.local("wb") = tensor_value({2, 2}, {5, 6, 7, 8});
  NamedValues feeds;
  feeds["a"] = tensor_value({3, 2}, {1, 2, 3, 4, 5, 6});
  const std::vector<std::string> fetch{"loss", "wb@GRAD"};
  std::vector<Value> results;
  for (const bool optimize : {false, true}) {
    auto prepared = Executor(runtime, {.optimize = optimize}).prepare(*program, scope);
    ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
    feeds["b"] = tensor_value({3, 2}, {1, 1, 1, 1, 1, 1});
    EXPECT_TRUE((*prepared)->run(feeds, fetch, results).ok());
    feeds["b"] = tensor_value({1, 2}, {1, 1});
    const Status status = (*prepared)->run(feeds, fetch, results);
    EXPECT_EQ(status.ok(), !optimize) << status.to_string();
    if (optimize) {
      EXPECT_THAT(status.to_string(), ::testing::HasSubstr("broadcast to the other operand"));
    }
  }
}

// A softmax and a layer_norm of it, both written as separate ops.
constexpr const char* kWrittenOut = R"(# millrace program 1

block 0 {
  var in: f32(-1, 8) stop_gradient
  param w: f32(8, 8)
  param g: f32(8)
  param b: f32(8)
  var x: f32(-1, 8)
  var m0: f32(-1, 1)
  var d: f32(-1, 8)
  var e: f32(-1, 8)
  var t: f32(-1, 1)
  var s: f32(-1, 8)
  var m: f32(-1, 1)
  var c: f32(-1, 8)
  var q: f32(-1, 8)
  var v: f32(-1, 1)
  var ve: f32(-1, 1)
  var r: f32(-1, 1)
  var o: f32(-1, 8)
  var p: f32(-1, 8)
  var n: f32(-1, 8)
  var y: f32(-1, 8)
  var loss: f32(1)

  mul X=in Y=w -> Out=x
  reduce_max X=x -> Out=m0 {dim: [-1], keep_dim: true}
  elementwise_sub X=x Y=m0 -> Out=d
  exp X=d -> Out=e
  reduce_sum X=e -> Out=t {dim: [1], keep_dim: true}
  elementwise_div X=e Y=t -> Out=s
  reduce_mean X=s -> Out=m {dim: [-1], keep_dim: true}
  elementwise_sub X=s Y=m -> Out=c
  elementwise_mul X=c Y=c -> Out=q
  reduce_mean X=q -> Out=v {dim: [-1], keep_dim: true}
  scale X=v -> Out=ve {bias: 0.5}
  sqrt X=ve -> Out=r
  elementwise_div X=c Y=r -> Out=o
  elementwise_mul X=o Y=g -> Out=p
  elementwise_add X=p Y=b -> Out=n
  elementwise_mul X=x Y=n -> Out=y
  mean X=y -> Out=loss
}
)";

TEST(OptimizeTraining, WrittenOutPatternsHaveTheGradientsOfTheirOps) {
  const auto runtime = standard_runtime();
  auto program = parse_program(kWrittenOut, "net", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  Block& block = program.value()->root();
  ops::BackwardRequest request;
  request.loss = "loss";
  ASSERT_TRUE(ops::append_backward(*runtime->ops, **program, request).ok());
  block.append_op("scale").set_input("X", "w").set_output("Out",
                                                          "w");  // so that it counts as trained
  const std::vector<std::string> fetch{"loss", "w@GRAD", "g@GRAD", "b@GRAD"};
  std::vector<std::vector<Value>> results(2);
  for (const bool fuse : {true, false}) {
    Scope scope;
    const auto wave = [](std::vector<int64_t> dims, size_t count, float phase) {
      std::vector<float> values;
      for (size_t i = 0; i < count; ++i) values.push_back(std::sin(0.7F * i + phase));
      return tensor_value(std::move(dims), values);
    };
    scope.local("w") = wave({8, 8}, 64, 1);
    scope.local("g") = wave({8}, 8, 2);
    scope.local("b") = wave({8}, 8, 3);
    NamedValues feeds;
    feeds["in"] = wave({5, 8}, 40, 4);
    auto prepared = Executor(runtime, {.optimize = fuse}).prepare(**program, scope);
    ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
    const Status status = (*prepared)->run(feeds, fetch, results[fuse ? 1 : 0]);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const auto types = op_types((*prepared)->program());
    EXPECT_EQ(llvm::is_contained(types, "layer_norm_grad"), fuse);
    EXPECT_EQ(llvm::is_contained(types, "softmax_grad"), fuse);
  }
  for (size_t i = 0; i < fetch.size(); ++i) {
    const auto plain = floats(results[0][i]);
    const auto fused = floats(results[1][i]);
    ASSERT_EQ(plain.size(), fused.size());
    for (size_t k = 0; k < plain.size(); ++k)
      EXPECT_NEAR(plain[k], fused[k], 1e-6 + 1e-5 * std::abs(plain[k])) << fetch[i] << k;
  }
}

// With and without the rewrites a training step gives the same loss, gradients and parameters.
TEST(OptimizeTraining, LeavesResultsAsTheyAre) {
  const auto runtime = standard_runtime();
  auto program = parse_program(kOptimizeNet, "net", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  Block& block = program.value()->root();
  ops::BackwardRequest request;
  request.loss = "loss";
  auto pairs = ops::append_backward(*runtime->ops, **program, request);
  ASSERT_TRUE(pairs.ok()) << pairs.status().to_string();
  VarSpec rate = VarSpec::tensor(DType::kFloat32, {1});
  rate.persistable = true;
  block.declare("rate", rate);
  for (const ops::ParamGrad& pair : *pairs) {
    block.append_op("sgd")
        .set_input("Param", pair.param)
        .set_input("Grad", pair.grad)
        .set_input("LearningRate", "rate")
        .set_output("ParamOut", pair.param);
  }
  const auto wave = [](const Dims& dims, float phase) {
    std::vector<float> values;
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    for (int64_t i = 0; i < count; ++i) values.push_back(std::sin(0.7F * i + phase));
    return tensor_value({dims.begin(), dims.end()}, values);
  };
  std::vector<std::vector<Value>> results(2);
  size_t ops_run[2] = {};
  for (const bool fuse : {true, false}) {
    Scope scope;
    for (const char* const name : {"w", "w2"}) scope.local(name) = wave({4, 4}, name[1] + 1.0F);
    for (const char* const name : {"b", "b2"}) scope.local(name) = wave({4}, name[1] + 2.0F);
    scope.local("rate") = tensor_value({1}, {0.5F});
    NamedValues feeds;
    feeds["x"] = wave({2, 3, 4}, 0);
    feeds["mask"] = wave({2, 1, 1, 3}, 4);
    auto prepared = Executor(runtime, {.optimize = fuse}).prepare(**program, scope);
    ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
    ops_run[fuse ? 0 : 1] = prepared.value()->program().root().op_count();
    for (int step = 0; step < 3; ++step) {
      const Status status = prepared.value()->run(
          feeds, {"loss", "w@GRAD", "b@GRAD", "w2@GRAD", "b2@GRAD", "w", "b", "w2", "b2"},
          results[fuse ? 0 : 1]);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }
  // 12 of the attention, 12 of its gradient, a sum of each layer, and all updates but one
  EXPECT_EQ(ops_run[1] - ops_run[0], 29U);
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_THAT(floats(results[0][i]),
                ::testing::Pointwise(::testing::FloatNear(1e-5F), floats(results[1][i])))
        << "result " << i;
  }
}

}  // namespace
}  // namespace millrace::executor
