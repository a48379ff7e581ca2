#include <array>
#include <cmath>
#include <memory>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/compiled_ops/memory_guard.h"
#include "executor/executor.h"
#include "executor/session.h"
#include "executor/standard_runtime.h"
#include "tests/executor/parallel/small_job.h"

// A run of a program sees nothing of earlier runs except persistable vars.
namespace millrace::executor {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
Value filled_fresh_step(DType dtype, const std::vector<int64_t>& dims, T content) {
  Value value;
  EXPECT_TRUE(value.as<Tensor>().resize(dtype, dims).ok());
  for (T& element : value.as<Tensor>().values<T>()) element = content;
  return value;
}

// A program in a separate scope, prepared once.
struct Runs {
  explicit Runs(const std::string& text, ExecutorOptions options = {}) {
    auto made = Executor(standard_runtime(), options).prepare(program_of(text), scope);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    prepared = *std::move(made);
  }
  Status run(const NamedValues& feeds, const std::vector<std::string>& fetches) {
    return prepared->run(feeds, fetches, results);
  }

  Scope scope;
  std::unique_ptr<PreparedProgram> prepared;
  std::vector<Value> results;
};

TEST(FreshStep, FeedsServeOneRun) {
  Runs runs(R"(# millrace
block 0 {
  var x: f32(-1, 2)
  var y: f32(-1, 2)
  scale X=x -> Out=y {scale: 2.0}
}
)");
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, 2});
  ASSERT_TRUE(runs.run(feeds, {"y"}).ok());
  const Status status = runs.run({}, {"y"});
  EXPECT_EQ(status.code(), StatusCode::kExecution);
  EXPECT_THAT(status.to_string(), HasSubstr("the input holds no value"));
}

constexpr const char* kArray = R"(# millrace
block 0 {
  var x: f32(-1, 2)
  var i: i64(1)
  var a: lod_tensor_array f32(-1, 2)
  var n: i64(1)
  write_to_array X=x I=i -> Out=a
  lod_array_length X=a -> Out=n
}
)";

TEST(FreshStep, ArraysBeginEmpty) {
  for (const bool optimize : {true, false}) {
    Runs runs(kArray, {.optimize = optimize});
    NamedValues feeds;
    feeds["x"] = tensor_value({1, 2}, {1, 2});
    for (const int64_t at : {3, 0, 5, 1}) {
      feeds["i"] = filled_fresh_step<int64_t>(DType::kInt64, {1}, at);
      const Status status = runs.run(feeds, {"n"});
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(*runs.results[0].get_if<Tensor>()->data<int64_t>(), at + 1);
    }
  }
}

TEST(FreshStep, ArraysBeginEmptyOnEveryDevice) {
  Scope scope;
  ParallelOptions options;
  options.devices = 2;
  auto made = ParallelExecutor::create(standard_runtime(), *program_of(kArray), scope, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  std::vector<Value> results;
  for (const int64_t at : {3, 0}) {
    std::vector<NamedValues> feeds(2);
    for (NamedValues& of_device : feeds) {
      of_device["x"] = tensor_value({1, 2}, {1, 2});
      of_device["i"] = filled_fresh_step<int64_t>(DType::kInt64, {1}, at);
    }
    const Status status = (*made)->run(ParallelFeeds::list(feeds), {"n"}, results);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_THAT(results[0].get_if<Tensor>()->values<int64_t>(), Each(at + 1));
  }
}

TEST(FreshStep, ABranchThatIsNotTakenYieldsNothing) {
  Runs runs(R"(# millrace
block 0 {
  var c: bool(1)
  var x: f32(2)
  var y: f32(2)
  var z: f32(2)
  var s: step_scopes
  conditional_block Cond=c Input=x -> Out=y Scope=s {sub_block: ^1, is_scalar_condition: true}
  scale X=y -> Out=z {scale: 2.0}
}
block 1 parent=0 {
  scale X=x -> Out=y {scale: 3.0}
}
)");
  NamedValues feeds;
  feeds["x"] = tensor_value({2}, {1, 2});
  feeds["c"] = filled_fresh_step<bool>(DType::kBool, {1}, true);
  Status status = runs.run(feeds, {"z"});
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(floats(runs.results[0]), ElementsAre(6, 12));
  feeds["c"] = filled_fresh_step<bool>(DType::kBool, {1}, false);
  status = runs.run(feeds, {"z"});
  EXPECT_THAT(status.to_string(), HasSubstr("the input holds no value"));
}

// A time step of a recurrence passes on a state that a control op has written, even though the
// scope that all time steps share is new in each.
TEST(FreshStep, StatesOutliveTheStepThatWroteThem) {
  Runs runs(R"(# millrace
block 0 {
  var x: f32(3, 1, 2)
  var h0: f32(1, 2)
  var c: bool(1)
  var y: f32(3, 1, 2)
  var s: step_scopes
  recurrent inputs=x initial_states=h0 parameters=c -> outputs=y step_scopes=s {sub_block: ^1, ex_states: ["h"], states: ["h2"], is_train: false}
}
block 1 parent=0 {
  var x: f32(1, 2)
  var h: f32(1, 2)
  var h2: f32(1, 2)
  var t: f32(1, 2)
  var y: f32(1, 2)
  var s2: step_scopes
  elementwise_add X=x Y=h -> Out=t
  conditional_block Cond=c Input=t -> Out=h2 Scope=s2 {sub_block: ^2, is_scalar_condition: true}
  scale X=h2 -> Out=y {scale: 10.0}
}
block 2 parent=1 {
  scale X=t -> Out=h2 {scale: 1.0}
}
)");
  NamedValues feeds;
  feeds["x"] = tensor_value({3, 1, 2}, {1, 2, 1, 2, 1, 2});
  feeds["h0"] = tensor_value({1, 2}, {0, 1});
  feeds["c"] = filled_fresh_step<bool>(DType::kBool, {1}, true);
  for (int run = 0; run < 2; ++run) {
    const Status status = runs.run(feeds, {"y"});
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_THAT(floats(runs.results[0]), ElementsAre(10, 30, 20, 50, 30, 70));
  }
}

// The static shape of Bias@GRAD is unknown to inference: memory is planned after the first run, and
// the batch, but not this shape, changes in the third run.
TEST(FreshStep, OutputsThatTheKernelSizesAreSizedInEveryRun) {
  constexpr const char* kText = R"(# millrace
block 0 {
  param w: f32(2, 2, 2)
  var x: f32(-1, 2)
  var dout: f32(-1, 2)
  var dx: f32(-1, 2)
  var db: f32(1, 2)
  var z: f32(1, 2)
  bilinear_tensor_product_grad X=x Y=x Weight=w Out@GRAD=dout -> X@GRAD=dx Bias@GRAD=db
  scale X=db -> Out=z {scale: 2.0}
}
)";
  for (const bool debug : {false, true}) {
    Runs runs(kText, {.debug_memory = debug});
    runs.scope.local("w") = tensor_value({2, 2, 2}, std::vector<float>(8, 0.5F));
    for (const int64_t rows : {2, 2, 3, 1, 4}) {
      const auto count = static_cast<size_t>(rows) * 2;
      NamedValues feeds;
      feeds["x"] = tensor_value({rows, 2}, std::vector<float>(count, 1));
      feeds["dout"] = tensor_value({rows, 2}, std::vector<float>(count, 1));
      const Status status = runs.run(feeds, {"z"});
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_THAT(floats(runs.results[0]),
                  ElementsAre(2 * static_cast<float>(rows), 2 * static_cast<float>(rows)));
    }
  }
}

// The loss is a scaled sum, so that its gradient depends only on constants.
constexpr const char* kScaledLoss = R"(# millrace
block 0 {
  param w: f32(3, 1)
  param b: f32(1)
  persist lr: f32(1)
  var x: f32(-1, 3)
  var t: f32(-1, 1)
  var m: f32(-1, 1)
  var s: f32(1)
  var loss: f32(1)
  var loss@GRAD: f32(1)
  var s@GRAD: f32(1)
  var m@GRAD: f32(-1, 1)
  var w@GRAD: f32(3, 1)
  mul X=x Y=w -> Out=m {op_role: 0}
  mean X=m -> Out=s {op_role: 0}
  scale X=s -> Out=loss {scale: 0.5, op_role: 256}
  fill_constant -> Out=loss@GRAD {shape: [1], value: 1.0, dtype: 5, op_role: 257}
  scale X=loss@GRAD -> Out=s@GRAD {scale: 0.5, op_role: 1}
  mean_grad X=m Out@GRAD=s@GRAD -> X@GRAD=m@GRAD {op_role: 1}
  mul_grad X=x Y=w Out@GRAD=m@GRAD -> Y@GRAD=w@GRAD {op_role: 1, op_role_var: ["w", "w@GRAD"]}
  sgd Param=w Grad=w@GRAD LearningRate=lr -> ParamOut=w {op_role: 2, op_role_var: ["w", "w@GRAD"]}
}
)";

TEST(FreshStep, DevicesScaleGradientsOfLossesThatFollowFromConstants) {
  const auto trained = [](int count, GradientScale scale) {
    ParallelOptions options = devices(count);
    options.build_strategy.gradient_scale_strategy = scale;
    Job job(options, program_of(kScaledLoss));
    std::vector<Value> results;
    NamedValues feeds = batch(8, 1);
    const Status status = job.executor->run(ParallelFeeds::split(feeds), {"loss"}, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return floats(*job.executor->local_scope(0).find("w"));
  };
  const std::vector<float> one = trained(1, GradientScale::kCoeffNumDevice);
  for (const GradientScale scale : {GradientScale::kCoeffNumDevice, GradientScale::kWeighted}) {
    const std::vector<float> two = trained(2, scale);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-6F);
  }
  // without the scale the sum over devices is the gradient
  const std::vector<float> summed = trained(2, GradientScale::kOne);
  const std::vector<float> start{0.3F, -0.2F, 0.1F};
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_NEAR(summed[i] - start[i], 2 * (one[i] - start[i]), 1e-6F);
}

// Writes only the first half of its result.
CustomOp half_done() {
  return {"half_done", [](OpCall& call) -> Status {
            MILLRACE_ASSIGN_OR_RETURN(const ArrayView x, call.input("X"));
            MILLRACE_ASSIGN_OR_RETURN(
                const auto out,
                call.output_values<float>("Out", x.dtype, {x.dims.begin(), x.dims.end()}));
            for (size_t i = 0; i < out.size() / 2; ++i) out[i] = x.values<float>()[i];
            return Ok();
          }};
}

StatusOr<Arrays> run_three_times(const std::string& text, std::vector<CustomOp> ops,
                                 bool debug_memory) {
  MILLRACE_ASSIGN_OR_RETURN(Session session, Session::open(*program_of(text), nullptr,
                                                           {.optimize = false,
                                                            .debug_memory = debug_memory,
                                                            .custom_ops = std::move(ops)}));
  Arrays feeds;
  const std::vector<float> x(256, 1);
  feeds["x"] = Array::of<float>({256}, x);
  for (int run = 0; run < 2; ++run) MILLRACE_RETURN_IF_ERROR(session.run(feeds, {"out"}).status());
  return session.run(feeds, {"out"});
}

TEST(DebugMemory, ElementsThatAnOpDoesNotWriteAreNaN) {
  const auto results = run_three_times(R"(# millrace
block 0 {
  var x: f32(256)
  var a: f32(256)
  var b: f32(256)
  var out: f32(256)
  scale X=x -> Out=a {scale: 3.0}
  half_done X=a -> Out=b
  scale X=b -> Out=out {scale: 2.0}
}
)",
                                       {half_done()}, true);
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  const auto out = results->at("out").values<float>();
  EXPECT_EQ(out[0], 6);
  EXPECT_TRUE(std::isnan(out[128]));
  EXPECT_TRUE(std::isnan(out[255]));
}

// An op that overwrites the result of an earlier one that has no more readers.
TEST(DebugMemory, NamesTheOpThatWritesToReleasedMemory) {
  const auto kept = std::make_shared<std::span<float>>();
  const CustomOp keeps{"keeps", [kept](OpCall& call) -> Status {
                         MILLRACE_ASSIGN_OR_RETURN(
                             *kept, call.output_values<float>("Out", DType::kFloat32, {256}));
                         for (float& element : *kept) element = 1;
                         return Ok();
                       }};
  const CustomOp writes{"writes", [kept](OpCall& call) -> Status {
                          MILLRACE_ASSIGN_OR_RETURN(
                              const auto out,
                              call.output_values<float>("Out", DType::kFloat32, {1}));
                          out[0] = 1;
                          (*kept)[200] = 7;
                          return Ok();
                        }};
  constexpr const char* kText = R"(# millrace
block 0 {
  var x: f32(256)
  var a: f32(256)
  var b: f32(1)
  var c: f32(1)
  var out: f32(1)
  keeps X=x -> Out=a
  mean X=a -> Out=b
  writes X=b -> Out=c
  scale X=c -> Out=out {scale: 2.0}
}
)";
  EXPECT_TRUE(run_three_times(kText, {keeps, writes}, false).ok());
  const auto watched = run_three_times(kText, {keeps, writes}, true);
  EXPECT_EQ(watched.status().code(), StatusCode::kInternal);
  EXPECT_EQ(watched.status().location().op, 2);
  EXPECT_THAT(watched.status().to_string(),
              HasSubstr("the op has written to memory that no value uses"));
}

TEST(DebugMemory, AGuardSeesWritesToWhatIsClosed) {
  alignas(64) std::array<std::byte, 256> memory{};
  const std::span<std::byte> all(memory);
  MemoryGuard guard;
  guard.watch(all);
  EXPECT_TRUE(guard.check().ok());
  guard.close(all);
  guard.open(all.subspan(64, 10));  // the rest of its cache line
  memory[64] = std::byte{1};
  memory[127] = std::byte{1};
  EXPECT_TRUE(guard.check().ok());
  memory[128] = std::byte{1};
  EXPECT_THAT(guard.check().message(), HasSubstr("at byte 128 of the 256"));
  guard.leave();
  EXPECT_TRUE(guard.check().ok());
}

}  // namespace
}  // namespace millrace::executor
