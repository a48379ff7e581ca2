// Ops on an emulated GPU whose results have bits to get wrong: NaN, ties, rows that occur twice,
// sums in parts, numbers given by tensors. The same program on the processor says what is right.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/feed_values.h"
#include "executor/gpu/gpu_ops.h"
#include "executor/standard_runtime.h"
#include "kernels/gpu/context.h"
#include "kernels/gpu/host_device.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// What three steps of a program computed in the last one, as doubles.
struct TypedRun {
  std::vector<std::vector<double>> results;
  std::vector<std::string> shapes;
  std::string plan;
  int64_t copies_out = 0;  // in the last step, without those of the results
};

template <typename T>
std::vector<double> as_doubles(const Tensor& tensor) {
  const auto values = tensor.values<T>();
  return {values.begin(), values.end()};
}
std::vector<double> numbers_in(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat64:
      return as_doubles<double>(tensor);
    case DType::kInt64:
      return as_doubles<int64_t>(tensor);
    case DType::kInt32:
      return as_doubles<int32_t>(tensor);
    case DType::kBool:
      return as_doubles<bool>(tensor);
    default:
      return as_doubles<float>(tensor);
  }
}

using MakeFeeds = NamedValues (*)();

TypedRun run_typed(const std::string& text, MakeFeeds feeds,
                   const std::vector<std::string>& fetches, bool on_gpu) {
  const auto program = program_of("# millrace\nblock 0 {\n" + text + "}");
  const auto context = on_gpu ? std::make_shared<gpu::Context>(gpu::open_host_device({})) : nullptr;
  Scope scope;
  TypedRun run;
  auto prepared =
      Executor(standard_runtime(), {.optimize = false, .gpu = context}).prepare(*program, scope);
  EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
  if (!prepared.ok()) return run;
  std::vector<Value> results;
  for (int step = 0; step < 3; ++step) {
    const int64_t before = on_gpu ? context->memory().traffic().copies_out : 0;
    const Status status = (*prepared)->run(feeds(), fetches, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return run;
    if (on_gpu)
      run.copies_out =
          context->memory().traffic().copies_out - before - static_cast<int64_t>(fetches.size());
  }
  for (const Value& result : results) {
    run.results.push_back(numbers_in(*result.get_if<Tensor>()));
    run.shapes.push_back(describe(*result.get_if<Tensor>()));
  }
  if (on_gpu) run.plan = (*prepared)->plan_text();
  return run;
}

// Runs on both, wholly on the GPU there, without waiting for it, and compares.
void expect_same(const std::string& text, MakeFeeds feeds,
                 const std::vector<std::string>& fetches) {
  const TypedRun here = run_typed(text, feeds, fetches, false);
  const TypedRun there = run_typed(text, feeds, fetches, true);
  EXPECT_THAT(there.plan, HasSubstr("on the cpu: 0"));
  EXPECT_LE(there.copies_out, 0);  // results that the processor has are not copied
  ASSERT_EQ(there.shapes, here.shapes);
  for (size_t k = 0; k < fetches.size(); ++k) {
    for (size_t i = 0; i < here.results[k].size(); ++i) {
      const double wanted = here.results[k][i];
      const double found = there.results[k][i];
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(found)) << fetches[k] << " " << i << ": " << found;
      } else {
        EXPECT_NEAR(found, wanted, 1e-5 * std::max(1.0, std::abs(wanted)))
            << fetches[k] << " " << i;
      }
    }
  }
}

NamedValues rows_with_nan() {
  NamedValues feeds;
  feeds["x"] =
      tensor_value({4, 5}, {1, kNotANumber, 3, 3, -2, kNotANumber, 5,     5,    1,  0,
                            2, 2,           2, 2, 2,  -1,          -0.0F, 0.0F, -3, kNotANumber});
  return feeds;
}

TEST(GpuTensorOps, NanAndTiesAreThoseOfTheProcessor) {
  expect_same(R"(
    var x: f32(-1, 5)
    var most: f32(-1)
    var least: f32(-1)
    var at: i64(-1)
    var under: i64(-1)
    var sorted: f32(-1, 5)
    var order: i64(-1, 5)
    var top: f32(-1, 3)
    var tops: i64(-1, 3)
    var fine: bool(1)
    reduce_max X=x -> Out=most {dim: [1]}
    reduce_min X=x -> Out=least {dim: [0]}
    arg_max X=x -> Out=at {axis: 1}
    arg_min X=x -> Out=under {axis: 0}
    argsort X=x -> Out=sorted Indices=order {axis: 1, descending: true}
    top_k_v2 X=x -> Out=top Indices=tops {k: 3, axis: 1, largest: false}
    isfinite X=x -> Out=fine
)",
              rows_with_nan,
              {"most", "least", "at", "under", "sorted", "order", "top", "tops", "fine"});
}

NamedValues long_rows() {
  NamedValues feeds;
  std::vector<float> values(2 * 700);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i * 7919) % 101) - 50.0F;
  feeds["x"] = tensor_value({2, 700}, values);
  return feeds;
}

TEST(GpuTensorOps, LongRowsAreSummedAndOrderedInParts) {
  expect_same(R"(
    var x: f32(-1, 700)
    var sums: f32(-1, 700)
    var back: f32(-1, 700)
    var top: f32(-1, 4)
    var tops: i64(-1, 4)
    var sorted: f32(-1, 700)
    var order: i64(-1, 700)
    cumsum X=x -> Out=sums {axis: 1}
    cumsum X=x -> Out=back {axis: 1, exclusive: true, reverse: true}
    top_k X=x -> Out=top Indices=tops {k: 4}
    argsort X=x -> Out=sorted Indices=order {axis: -1}
)",
              long_rows, {"sums", "back", "top", "tops", "sorted", "order"});
}

NamedValues rows_twice() {
  NamedValues feeds;
  feeds["x"] = tensor_value({3, 2}, {1, 2, 3, 4, 5, 6});
  feeds["u"] = tensor_value({4, 2}, {10, 20, 30, 40, 50, 60, 70, 80});
  Tensor& ids = feeds["ids"].as<Tensor>();
  EXPECT_TRUE(ids.resize(DType::kInt64, {4}).ok());
  const int64_t rows[] = {2, 0, 2, 0};
  std::copy(rows, rows + 4, ids.data<int64_t>());
  Tensor& index = feeds["index"].as<Tensor>();
  EXPECT_TRUE(index.resize(DType::kInt32, {4, 1}).ok());
  std::copy(rows, rows + 4, index.data<int32_t>());
  return feeds;
}

TEST(GpuTensorOps, RowsThatOccurTwiceAreReplacedOrAdded) {
  expect_same(R"(
    var x: f32(-1, 2)
    var u: f32(-1, 2)
    var ids: i64(-1)
    var index: i32(-1, 1)
    var last: f32(-1, 2)
    var sum: f32(-1, 2)
    var added: f32(-1, 2)
    var picked: f32(-1, 2)
    var slope: f32(-1, 2)
    scatter X=x Ids=ids Updates=u -> Out=last {overwrite: true}
    scatter X=x Ids=ids Updates=u -> Out=sum {overwrite: false}
    scatter_nd_add X=x Index=index Updates=u -> Out=added
    gather_nd X=x Index=index -> Out=picked
    gather_nd_grad X=x Index=index Out@GRAD=u -> X@GRAD=slope
)",
              rows_twice, {"last", "sum", "added", "picked", "slope"});
}

// Dims and bounds that other ops computed on the processor are read there.
TEST(GpuTensorOps, NumbersGivenByTensorsDoNotWait) {
  expect_same(R"(
    var x: f32(-1, 700)
    var dims: i32(2)
    var one: i32(1)
    var two: i32(1)
    var ones: f32(-1, -1)
    var part: f32(-1, -1)
    var steps: i32(-1)
    shape Input=x -> Out=dims
    fill_constant -> Out=one {shape: [1], dtype: 2, value: 1.0}
    fill_constant -> Out=two {shape: [1], dtype: 2, value: 5.0}
    fill_constant ShapeTensor=dims -> Out=ones {shape: ints[], dtype: 5, value: 3.0}
    slice Input=x StartsTensor=one EndsTensor=two -> Out=part {axes: [1], starts: [0], ends: [1], infer_flags: [-1]}
    range Start=one End=two Step=one -> Out=steps
)",
              long_rows, {"dims", "ones", "part", "steps"});
}

NamedValues whole_numbers() {
  NamedValues feeds;
  Tensor& x = feeds["x"].as<Tensor>();
  EXPECT_TRUE(x.resize(DType::kInt64, {2, 3}).ok());
  const int64_t values[] = {-7, 7, (int64_t{1} << 40) + 1, 5, -5, 3};
  std::copy(values, values + 6, x.data<int64_t>());
  Tensor& y = feeds["y"].as<Tensor>();
  EXPECT_TRUE(y.resize(DType::kInt64, {3}).ok());
  const int64_t divisors[] = {2, -2, -1};
  std::copy(divisors, divisors + 3, y.data<int64_t>());
  return feeds;
}

TEST(GpuTensorOps, WholeNumbersAreExact) {
  expect_same(R"(
    var x: i64(-1, 3)
    var y: i64(3)
    var quotient: i64(-1, 3)
    var floor: i64(-1, 3)
    var rest: i64(-1, 3)
    var sum: i64(1)
    var product: i64(-1)
    var most: i64(3)
    elementwise_div X=x Y=y -> Out=quotient
    elementwise_floordiv X=x Y=y -> Out=floor
    elementwise_mod X=x Y=y -> Out=rest
    reduce_sum X=x -> Out=sum {reduce_all: true}
    reduce_prod X=x -> Out=product {dim: [1]}
    reduce_max X=x -> Out=most {dim: [0]}
)",
              whole_numbers, {"quotient", "floor", "rest", "sum", "product", "most"});
}

// The kernel of the processor words the errors.
TEST(GpuTensorOps, WrongNumbersAreErrors) {
  const auto fails = [](const std::string& text, MakeFeeds feeds) {
    const auto program = program_of("# millrace\nblock 0 {\n" + text + "}");
    Scope scope;
    auto prepared = Executor(standard_runtime(),
                             {.gpu = std::make_shared<gpu::Context>(gpu::open_host_device({}))})
                        .prepare(*program, scope);
    EXPECT_TRUE(prepared.ok());
    std::vector<Value> results;
    return (*prepared)->run(feeds(), {"out"}, results).to_string();
  };
  EXPECT_THAT(fails("var x: i64(-1, 3)\nvar out: i64(-1, 3)\n"
                    "elementwise_sub X=x Y=x -> Out=out\nelementwise_mod X=x Y=out -> Out=out\n",
                    whole_numbers),
              HasSubstr("elementwise_mod"));
  EXPECT_THAT(fails("var x: f32(-1, 2)\nvar ids: i64(-1)\nvar out: f32(-1, 2)\n"
                    "gather X=x Index=ids -> Out=out {axis: 1}\n",
                    rows_twice),
              HasSubstr("Index has 2 at 0, expected a number in [0, 2)"));
}

}  // namespace
}  // namespace millrace::executor
