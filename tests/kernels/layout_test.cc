// Tensors in the layout of a library: every program must have the result of row-major f64.
#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "framework/text_form/parse.h"
#include "kernels/cpu/layouts.h"
#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using executor::NamedValues;

struct Fed {
  std::string name;
  Dims dims;
};

// A program in two element types, with scopes that hold its persistable vars.
class Net {
 public:
  // f32 in text is replaced by the element type.
  Net(const std::string& text, DType dtype) : dtype_(dtype) {
    std::string typed = text;
    if (dtype == DType::kFloat64) {
      for (size_t at = 0; (at = typed.find("f32", at)) != std::string::npos;)
        typed.replace(at, 3, "f64");
    }
    auto program = parse_program(typed, "test");
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    program_ = std::move(program).value();
    auto prepared =
        executor::Executor(executor::standard_runtime(), {.threads = 2}).prepare(*program_, scope_);
    EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
    prepared_ = std::move(prepared).value();
  }

  // Sets a persistable var; offset 0 produces values of both signs.
  void set(const std::string& name, const Dims& dims, double offset = 0) {
    scope_.local(name) = value(name, dims, offset);
  }

  std::map<std::string, std::vector<double>> run(const std::vector<Fed>& feeds,
                                                 const std::vector<std::string>& fetches) {
    NamedValues values;
    for (const Fed& feed : feeds) values[feed.name] = value(feed.name, feed.dims, 0);
    std::vector<Value> results;
    const Status status = prepared_->run(values, fetches, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::map<std::string, std::vector<double>> out;
    if (!status.ok()) return out;
    for (size_t i = 0; i < fetches.size(); ++i) out[fetches[i]] = numbers(results[i]);
    return out;
  }

  [[nodiscard]] const Tensor& held(const std::string& name) const {
    return *scope_.find_local(name)->get_if<Tensor>();
  }
  [[nodiscard]] std::string plan() const { return prepared_->plan_text(); }
  [[nodiscard]] int64_t memory_bytes() const { return prepared_->memory_bytes(); }

 private:
  [[nodiscard]] Value value(const std::string& name, const Dims& dims, double offset) const {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    std::vector<double> values = waves(count, static_cast<double>(name.size() + name.back()));
    for (double& v : values) v = std::nearbyint(v * 64) / 64 + offset;  // the same in both types
    return tensor_value(dims, values, dtype_);
  }

  DType dtype_;
  std::unique_ptr<Program> program_;
  Scope scope_;
  std::unique_ptr<executor::PreparedProgram> prepared_;
};

using Sets = std::vector<std::pair<Fed, double>>;

// Runs a program three times in both types; fetches the first var each time, and all at the end.
void expect_same(const std::string& text, const Sets& persistable, const std::vector<Fed>& feeds,
                 const std::vector<std::string>& fetches) {
  Net narrow(text, DType::kFloat32);
  Net wide(text, DType::kFloat64);
  for (const auto& [fed, offset] : persistable) {
    narrow.set(fed.name, fed.dims, offset);
    wide.set(fed.name, fed.dims, offset);
  }
  for (int run = 0; run < 4; ++run) {
    const auto wanted = run < 2 ? std::vector<std::string>{fetches[0]} : fetches;
    const auto found = narrow.run(feeds, wanted);
    const auto truth = wide.run(feeds, wanted);
    for (const std::string& name : wanted) {
      ASSERT_EQ(found.at(name).size(), truth.at(name).size()) << name;
      double largest = 1e-3;
      for (const double v : truth.at(name)) largest = std::max(largest, std::fabs(v));
      for (size_t i = 0; i < truth.at(name).size(); ++i) {
        ASSERT_NEAR(found.at(name)[i], truth.at(name)[i], 2e-4 * largest)
            << name << "[" << i << "] in run " << run;
      }
    }
  }
}

// conv - batch_norm - relu - pool, a shortcut with another convolution, their sum, and gradients.
const char* const kBlock = R"(# millrace program 1
block 0 {
  persist w: f32(C, 3, 3, 3)
  persist v: f32(C, C, 1, 1)
  persist scale: f32(C)
  persist bias: f32(C)
  persist mean: f32(C)
  persist variance: f32(C)
  var x: f32(-1, 3, 9, 9)
  var c: f32(-1, C, 9, 9)
  var n: f32(-1, C, 9, 9)
  var saved_mean: f32(C)
  var saved_variance: f32(C)
  var r: f32(-1, C, 9, 9)
  var p: f32(-1, C, 5, 5)
  var s: f32(-1, C, 5, 5)
  var a: f32(-1, C, 5, 5)
  var b: f32(-1, C, 5, 5)
  var y: f32(-1, C, 1, 1)
  var "y@GRAD": f32(-1, C, 1, 1)
  var "b@GRAD": f32(-1, C, 5, 5)
  var "a@GRAD": f32(-1, C, 5, 5)
  var "s@GRAD": f32(-1, C, 5, 5)
  var "p@1": f32(-1, C, 5, 5)
  var "p@2": f32(-1, C, 5, 5)
  var "p@GRAD": f32(-1, C, 5, 5)
  var "r@GRAD": f32(-1, C, 9, 9)
  var "n@GRAD": f32(-1, C, 9, 9)
  var "c@GRAD": f32(-1, C, 9, 9)
  var "x@GRAD": f32(-1, 3, 9, 9)
  var "w@GRAD": f32(C, 3, 3, 3)
  var "v@GRAD": f32(C, C, 1, 1)
  var "scale@GRAD": f32(C)
  var "bias@GRAD": f32(C)

  conv2d Input=x Filter=w -> Output=c {strides: [1, 1], paddings: [1, 1]}
  batch_norm X=c Scale=scale Bias=bias Mean=mean Variance=variance -> Y=n MeanOut=mean VarianceOut=variance SavedMean=saved_mean SavedVariance=saved_variance
  relu X=n -> Out=r
  pool2d X=r -> Out=p {pooling_type: "max", ksize: [3, 3], strides: [2, 2], paddings: [1, 1]}
  conv2d Input=p Filter=v -> Output=s
  elementwise_add X=p Y=s -> Out=a
  leaky_relu X=a -> Out=b {alpha: 0.25}
  pool2d X=b -> Out=y {pooling_type: "avg", ksize: [1, 1], global_pooling: true}

  pool2d_grad X=b Out=y Out@GRAD="y@GRAD" -> X@GRAD="b@GRAD" {pooling_type: "avg", ksize: [1, 1], global_pooling: true}
  leaky_relu_grad X=a Out@GRAD="b@GRAD" -> X@GRAD="a@GRAD" {alpha: 0.25}
  elementwise_add_grad X=p Y=s Out@GRAD="a@GRAD" -> X@GRAD="p@1" Y@GRAD="s@GRAD"
  conv2d_grad Input=p Filter=v Output@GRAD="s@GRAD" -> Input@GRAD="p@2" Filter@GRAD="v@GRAD"
  sum X="p@1", "p@2" -> Out="p@GRAD"
  pool2d_grad X=r Out=p Out@GRAD="p@GRAD" -> X@GRAD="r@GRAD" {pooling_type: "max", ksize: [3, 3], strides: [2, 2], paddings: [1, 1]}
  relu_grad Out=r Out@GRAD="r@GRAD" -> X@GRAD="n@GRAD"
  batch_norm_grad X=c Y@GRAD="n@GRAD" Scale=scale Bias=bias SavedMean=saved_mean SavedVariance=saved_variance -> X@GRAD="c@GRAD" Scale@GRAD="scale@GRAD" Bias@GRAD="bias@GRAD"
  conv2d_grad Input=x Filter=w Output@GRAD="c@GRAD" -> Input@GRAD="x@GRAD" Filter@GRAD="w@GRAD" {strides: [1, 1], paddings: [1, 1]}
}
)";

std::string with_channels(std::string text, int64_t channels) {
  const std::string number = std::to_string(channels);
  for (const char* const before : {"(C", ", C"}) {
    for (size_t at = 0; (at = text.find(before, at)) != std::string::npos;)
      text.replace(at + std::string(before).size() - 1, 1, number);
  }
  return text;
}

// Filters and vectors of a net with c channels; the second filter has `inner` of them.
Sets persistable(int64_t c, int64_t inner) {
  return {{{"w", {c, 3, 3, 3}}, 0}, {{"v", {c, inner, 1, 1}}, 0}, {{"scale", {c}}, 2},
          {{"bias", {c}}, 0},       {{"mean", {c}}, 0},           {{"variance", {c}}, 2}};
}

class Layouts : public ::testing::TestWithParam<int64_t> {};

// Numbers of channels that fill the blocks of the library, and that need padding.
INSTANTIATE_TEST_SUITE_P(Channels, Layouts, ::testing::Values(32, 20, 8, 5));

TEST_P(Layouts, TravelThroughForwardAndGradientOps) {
  const int64_t c = GetParam();
  expect_same(with_channels(kBlock, c), persistable(c, c),
              {{"x", {2, 3, 9, 9}}, {"y@GRAD", {2, c, 1, 1}}},
              {"y", "x@GRAD", "w@GRAD", "v@GRAD", "scale@GRAD", "bias@GRAD", "mean", "variance",
               "c", "r", "a", "p@GRAD", "w"});
}

// The rectified sum of a normalized image and another one, whose gradient is also a sum.
const char* const kRectifiedSum = R"(# millrace program 1
block 0 {
  persist w: f32(C, 3, 3, 3)
  persist v: f32(C, 3, 1, 1)
  persist scale: f32(C)
  persist bias: f32(C)
  persist mean: f32(C)
  persist variance: f32(C)
  var x: f32(-1, 3, 7, 7)
  var c: f32(-1, C, 7, 7)
  var d: f32(-1, C, 7, 7)
  var n: f32(-1, C, 7, 7)
  var saved_mean: f32(C)
  var saved_variance: f32(C)
  var a: f32(-1, C, 7, 7)
  var b: f32(-1, C, 7, 7)
  var y: f32(-1, C, 1, 1)
  var "y@GRAD": f32(-1, C, 1, 1)
  var "b@1": f32(-1, C, 7, 7)
  var "b@2": f32(-1, C, 7, 7)
  var "b@GRAD": f32(-1, C, 7, 7)
  var "a@GRAD": f32(-1, C, 7, 7)
  var "n@GRAD": f32(-1, C, 7, 7)
  var "d@GRAD": f32(-1, C, 7, 7)
  var "c@GRAD": f32(-1, C, 7, 7)
  var "x@GRAD": f32(-1, 3, 7, 7)
  var "w@GRAD": f32(C, 3, 3, 3)
  var "v@GRAD": f32(C, 3, 1, 1)
  var "scale@GRAD": f32(C)
  var "bias@GRAD": f32(C)

  conv2d Input=x Filter=v -> Output=d
  conv2d Input=x Filter=w -> Output=c {paddings: [1, 1]}
  batch_norm X=c Scale=scale Bias=bias Mean=mean Variance=variance -> Y=n MeanOut=mean VarianceOut=variance SavedMean=saved_mean SavedVariance=saved_variance
  elementwise_add X=d Y=n -> Out=a
  relu X=a -> Out=b
  pool2d X=b -> Out=y {pooling_type: "avg", ksize: [1, 1], global_pooling: true}

  pool2d_grad X=b Out=y Out@GRAD="y@GRAD" -> X@GRAD="b@1" {pooling_type: "avg", ksize: [1, 1], global_pooling: true}
  scale X=b -> Out="b@2" {scale: 0.5}
  sum X="b@1", "b@2" -> Out="b@GRAD"
  relu_grad Out=b Out@GRAD="b@GRAD" -> X@GRAD="a@GRAD"
  elementwise_add_grad X=d Y=n Out@GRAD="a@GRAD" -> X@GRAD="d@GRAD" Y@GRAD="n@GRAD"
  batch_norm_grad X=c Y@GRAD="n@GRAD" Scale=scale Bias=bias SavedMean=saved_mean SavedVariance=saved_variance -> X@GRAD="c@GRAD" Scale@GRAD="scale@GRAD" Bias@GRAD="bias@GRAD"
  conv2d_grad Input=x Filter=w Output@GRAD="c@GRAD" -> Filter@GRAD="w@GRAD" {paddings: [1, 1]}
  conv2d_grad Input=x Filter=v Output@GRAD="d@GRAD" -> Input@GRAD="x@GRAD" Filter@GRAD="v@GRAD"
}
)";

TEST_P(Layouts, TravelThroughRectifiedSumsOfNormalisedImages) {
  const int64_t c = GetParam();
  const std::string text = with_channels(kRectifiedSum, c);
  EXPECT_NE(Net(text, DType::kFloat32).plan().find("fused_batch_norm_grad"), std::string::npos);
  expect_same(
      text, persistable(c, 3), {{"x", {2, 3, 7, 7}}, {"y@GRAD", {2, c, 1, 1}}},
      {"y", "x@GRAD", "w@GRAD", "v@GRAD", "scale@GRAD", "bias@GRAD", "mean", "variance", "b"});
  expect_same(text, persistable(c, 3), {{"x", {1, 3, 7, 7}}, {"y@GRAD", {1, c, 1, 1}}},
              {"y", "x@GRAD", "w@GRAD", "n", "a@GRAD"});
}

// Filters keep the layout of the library between steps, and so does the state of the optimizer;
// readers of the scope see the elements.
const char* const kTraining = R"(# millrace program 1
block 0 {
  persist w: f32(32, 16, 3, 3)
  persist velocity: f32(32, 16, 3, 3)
  persist rate: f32(1)
  var x: f32(-1, 16, 6, 6)
  var y: f32(-1, 32, 4, 4)
  var "y@GRAD": f32(-1, 32, 4, 4)
  var "w@GRAD": f32(32, 16, 3, 3)

  conv2d Input=x Filter=w -> Output=y
  conv2d_grad Input=x Filter=w Output@GRAD="y@GRAD" -> Filter@GRAD="w@GRAD"
  momentum Param=w Grad="w@GRAD" Velocity=velocity LearningRate=rate -> ParamOut=w VelocityOut=velocity {mu: 0.5}
}
)";
const Sets kTrainingState = {
    {{"w", {32, 16, 3, 3}}, 0}, {{"velocity", {32, 16, 3, 3}}, 0}, {{"rate", {1}}, 0.5}};
const std::vector<Fed> kTrainingFeeds = {{"x", {2, 16, 6, 6}}, {"y@GRAD", {2, 32, 4, 4}}};

TEST(Layouts, FiltersAreUpdatedInTheLayoutOfTheLibrary) {
  expect_same(kTraining, kTrainingState, kTrainingFeeds, {"y", "w", "velocity", "w@GRAD"});
  Net net(kTraining, DType::kFloat32);
  for (const auto& [fed, offset] : kTrainingState) net.set(fed.name, fed.dims, offset);
  net.run(kTrainingFeeds, {});
  const Tensor& filter = net.held("w");
  ASSERT_NE(filter.layout(), nullptr);
  EXPECT_TRUE(same_order(filter.layout(), net.held("velocity").layout()));
  const std::byte* const place = filter.raw();
  net.run(kTrainingFeeds, {});
  EXPECT_EQ(filter.raw(), place);  // updated in place
  EXPECT_NE(filter.layout(), nullptr);
}

// Gradients of filters over images of a few pixels.
TEST(Layouts, FiltersOverFewPlaces) {
  const std::string text = R"(# millrace program 1
block 0 {
  persist w: f32(32, 16, 1, 1)
  persist v: f32(48, 32, 3, 3)
  var x: f32(-1, 16, 4, 4)
  var a: f32(-1, 32, 4, 4)
  var y: f32(-1, 48, 2, 2)
  var "y@GRAD": f32(-1, 48, 2, 2)
  var d: f32(-1, 48, 2, 2)
  var "v@GRAD": f32(48, 32, 3, 3)

  conv2d Input=x Filter=w -> Output=a
  conv2d Input=a Filter=v -> Output=y {strides: [2, 2], paddings: [1, 1]}
  elementwise_add X=y Y="y@GRAD" -> Out=d
  conv2d_grad Input=a Filter=v Output@GRAD=d -> Filter@GRAD="v@GRAD" {strides: [2, 2], paddings: [1, 1]}
}
)";
  expect_same(text, {{{"w", {32, 16, 1, 1}}, 0}, {{"v", {48, 32, 3, 3}}, 0}},
              {{"x", {3, 16, 4, 4}}, {"y@GRAD", {3, 48, 2, 2}}}, {"y", "v@GRAD"});
}

// Images of a few pixels, in groups of eight and with incomplete groups.
TEST(Layouts, FewPlacesOfManyImages) {
  const std::string forward = R"(# millrace program 1
block 0 {
  persist u: f32(32, 16, 1, 1)
  persist w: f32(64, 32, 3, 3)
  persist v: f32(64, 32, 1, 1)
  persist bias: f32(64)
  var x: f32(-1, 16, 4, 4)
  var a: f32(-1, 32, 4, 4)
  var c: f32(-1, 64, 2, 2)
  var d: f32(-1, 64, 2, 2)
  var e: f32(-1, 64, 2, 2)
  var g: f32(-1, 64, 2, 2)
  var y: f32(-1, 64, 2, 2)
)";
  const std::string ops = R"(
  conv2d Input=x Filter=u -> Output=a
  conv2d Input=a Filter=v -> Output=c {strides: [2, 2]}
  conv2d Input=a Filter=w -> Output=d {strides: [2, 2], paddings: [1, 1]}
  elementwise_add X=d Y=bias -> Out=e {axis: 1}
  elementwise_add X=e Y=c -> Out=g
  relu X=g -> Out=y
)";
  const std::string backward = R"(
  var "y@GRAD": f32(-1, 64, 2, 2)
  var "d@GRAD": f32(-1, 64, 2, 2)
  var "w@GRAD": f32(64, 32, 3, 3)
  var "v@GRAD": f32(64, 32, 1, 1)
  var "a@1": f32(-1, 32, 4, 4)
  var "a@2": f32(-1, 32, 4, 4)
)" + ops + R"(
  elementwise_mul X=y Y="y@GRAD" -> Out="d@GRAD"
  conv2d_grad Input=a Filter=w Output@GRAD="d@GRAD" -> Filter@GRAD="w@GRAD" Input@GRAD="a@1" {strides: [2, 2], paddings: [1, 1]}
  conv2d_grad Input=a Filter=v Output@GRAD="d@GRAD" -> Filter@GRAD="v@GRAD" Input@GRAD="a@2" {strides: [2, 2]}
}
)";
  const Sets held = {{{"u", {32, 16, 1, 1}}, 0},
                     {{"w", {64, 32, 3, 3}}, 0},
                     {{"v", {64, 32, 1, 1}}, 0},
                     {{"bias", {64}}, 0}};
  for (const int64_t images : {8, 14, 3}) {
    expect_same(forward + ops + "}\n", held, {{"x", {images, 16, 4, 4}}}, {"y"});
    expect_same(forward + backward, held,
                {{"x", {images, 16, 4, 4}}, {"y@GRAD", {images, 64, 2, 2}}},
                {"y", "a@1", "a@2", "w@GRAD", "v@GRAD"});
  }
}

// scale does not support layouts: it gets the filter row-major, and the convolution packs it again.
TEST(Layouts, OpsThatDoNotKnowThemReadRowMajorElements) {
  std::string text = kTraining;
  const std::string read =
      "  var decayed: f32(32, 16, 3, 3)\n  var last: f32(-1, 32, 4, 4)\n"
      "  var z: f32(-1, 512)\n";
  text.insert(text.find("  conv2d Input"), read);
  text.insert(text.find("  momentum"),
              "  scale X=w -> Out=decayed {scale: 0.5}\n  scale X=y -> Out=last {scale: 2.0}\n"
              "  relu X=y -> Out=y\n  flatten2 X=y -> Out=z XShape=[] {axis: 1}\n");
  expect_same(text, kTrainingState, kTrainingFeeds,
              {"z", "decayed", "last", "y", "w", "velocity", "w@GRAD"});
}

// A bias per channel, as a separate operand, and its gradient.
TEST_P(Layouts, AddABiasToEachChannel) {
  const int64_t c = GetParam();
  const std::string text = with_channels(R"(# millrace program 1
block 0 {
  persist w: f32(C, 3, 3, 3)
  var b: f32(C)
  var x: f32(-1, 3, 6, 6)
  var y: f32(-1, C, 4, 4)
  var z: f32(-1, C, 4, 4)
  var q: f32(-1, C, 4, 4)
  var e: f32(-1, C, 4, 4)
  var "z@GRAD": f32(-1, C, 4, 4)
  var "y@GRAD": f32(-1, C, 4, 4)
  var "b@GRAD": f32(C)
  var "w@GRAD": f32(C, 3, 3, 3)

  conv2d Input=x Filter=w -> Output=y
  elementwise_add X=y Y=b -> Out=z {axis: 1}
  elementwise_mul X=y Y=b -> Out=q {axis: 1}
  sigmoid X=y -> Out=e
  relu_grad Out=z Out@GRAD=q -> X@GRAD="z@GRAD"
  elementwise_add_grad X=y Y=b Out@GRAD="z@GRAD" -> X@GRAD="y@GRAD" Y@GRAD="b@GRAD" {axis: 1}
  conv2d_grad Input=x Filter=w Output@GRAD="y@GRAD" -> Filter@GRAD="w@GRAD"
}
)",
                                         c);
  expect_same(text, {{{"w", {c, 3, 3, 3}}, 0}}, {{"x", {2, 3, 6, 6}}, {"b", {c}}},
              {"z", "q", "e", "y@GRAD", "b@GRAD", "w@GRAD"});
}

// The rewrites of passes for a convolution and the ops after it, for whole and for padded blocks.
const char* const kInference = R"(# millrace program 1
block 0 {
  persist w: f32(C, 3, 3, 3)
  persist u: f32(C, C, 3, 3)
  persist b: f32(C)
  persist scale: f32(C)
  persist shift: f32(C)
  persist mean: f32(C)
  persist variance: f32(C)
  var x: f32(-1, 3, 9, 9)
  var c: f32(-1, C, 9, 9)
  var d: f32(-1, C, 9, 9)
  var n: f32(-1, C, 9, 9)
  var r: f32(-1, C, 9, 9)
  var e: f32(-1, C, 9, 9)
  var m: f32(-1, C, 9, 9)
  var a: f32(-1, C, 9, 9)
  var l: f32(-1, C, 9, 9)
  var p: f32(-1, C, 5, 5)
  var q: f32(-1, C, 5, 5)
  var y: f32(-1, C, 5, 5)
  var z: f32(-1, F)

  conv2d Input=x Filter=w -> Output=c {paddings: [1, 1]}
  elementwise_add X=c Y=b -> Out=d {axis: 1}
  batch_norm X=d Scale=scale Bias=shift Mean=mean Variance=variance -> Y=n MeanOut=mean VarianceOut=variance {is_test: true}
  relu X=n -> Out=r
  conv2d Input=r Filter=u -> Output=e {paddings: [1, 1]}
  batch_norm X=e Scale=scale Bias=shift Mean=mean Variance=variance -> Y=m MeanOut=mean VarianceOut=variance {is_test: true}
  elementwise_add X=m Y=r -> Out=a
  leaky_relu X=a -> Out=l {alpha: 0.25}
  pool2d X=l -> Out=p {pooling_type: "max", ksize: [3, 3], strides: [2, 2], paddings: [1, 1]}
  conv2d Input=p Filter=u -> Output=q {paddings: [1, 1]}
  relu6 X=q -> Out=y {threshold: 0.5}
  flatten2 X=y -> Out=z XShape=[] {axis: 1}
}
)";

TEST_P(Layouts, FusedConvolutions) {
  const int64_t c = GetParam();
  std::string text = with_channels(kInference, c);
  text.replace(text.find(", F)"), 4, ", " + std::to_string(c * 25) + ")");
  const Sets persistable = {{{"w", {c, 3, 3, 3}}, 0}, {{"u", {c, c, 3, 3}}, 0}, {{"b", {c}}, 0},
                            {{"scale", {c}}, 1.5},    {{"shift", {c}}, 0},      {{"mean", {c}}, 0},
                            {{"variance", {c}}, 2}};
  const std::vector<Fed> feeds = {{"x", {2, 3, 9, 9}}};
  expect_same(text, persistable, feeds, {"z", "y"});
  Net narrow(text, DType::kFloat32);
  Net wide(text, DType::kFloat64);
  // the copies that kernels have made are updated with the vars
  for (const double offset : {0.0, 0.5, -0.25}) {
    for (Net* const net : {&narrow, &wide}) {
      for (const auto& [fed, own] : persistable) net->set(fed.name, fed.dims, own + offset);
    }
    const auto found = narrow.run(feeds, {"z"});
    const auto truth = wide.run(feeds, {"z"});
    for (size_t i = 0; i < truth.at("z").size(); ++i)
      ASSERT_NEAR(found.at("z")[i], truth.at("z")[i], 5e-4) << i << " with " << offset;
  }
  EXPECT_THAT(narrow.plan(), ::testing::HasSubstr("fused_conv2d"));
  EXPECT_THAT(narrow.plan(), ::testing::Not(::testing::HasSubstr("batch_norm")));
  // the filter as read from outside
  EXPECT_EQ(narrow.run(feeds, {"w"}), narrow.run(feeds, {"w"}));
  narrow.set("u", {c, c, 3, 3}, 1);
  wide.set("u", {c, c, 3, 3}, 1);
  const auto found = narrow.run(feeds, {"z", "u"});
  const auto truth = wide.run(feeds, {"z", "u"});
  EXPECT_EQ(found.at("u"), truth.at("u"));
  for (size_t i = 0; i < truth.at("z").size(); ++i)
    ASSERT_NEAR(found.at("z")[i], truth.at("z")[i], 5e-4) << i;
}

TEST(Layouts, ASteadyStepMovesNothing) {
  Net net(with_channels(kBlock, 20), DType::kFloat32);
  for (const auto& [name, dims, offset] :
       std::vector<std::tuple<std::string, Dims, double>>{{"w", {20, 3, 3, 3}, 0},
                                                          {"v", {20, 20, 1, 1}, 0},
                                                          {"scale", {20}, 2},
                                                          {"bias", {20}, 0},
                                                          {"mean", {20}, 0},
                                                          {"variance", {20}, 2}})
    net.set(name, dims, offset);
  const std::vector<Fed> feeds = {{"x", {2, 3, 9, 9}}, {"y@GRAD", {2, 20, 1, 1}}};
  net.run(feeds, {"y"});
  net.run(feeds, {"y"});
  const int64_t bytes = net.memory_bytes();
  const std::byte* const filter = net.held("w").raw();
  net.run(feeds, {"y"});
  EXPECT_EQ(net.memory_bytes(), bytes);
  EXPECT_EQ(net.held("w").raw(), filter);
}

}  // namespace
}  // namespace millrace::kernels
