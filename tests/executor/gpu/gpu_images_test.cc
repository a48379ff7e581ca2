// Ops on images on the emulated device, where the references have no cases: values that are no
// numbers, positions outside of an image, and sizes that change from step to step.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "kernels/gpu/context.h"
#include "kernels/gpu/host_device.h"
#include "tests/executor/parallel/small_job.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Runs of one program, on the emulated device or on the processor.
struct ImageRuns {
  ImageRuns(const std::string& text, bool on_gpu) : program(program_of(text)) {
    auto gpu = on_gpu ? std::make_shared<gpu::Context>(gpu::open_host_device({})) : nullptr;
    auto made = Executor(standard_runtime(), {.optimize = false, .gpu = std::move(gpu)})
                    .prepare(*program, scope);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    prepared = *std::move(made);
  }
  std::vector<float> run(const NamedValues& feeds, const std::string& fetch) {
    std::vector<Value> results;
    const Status status = prepared->run(feeds, {fetch}, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return status.ok() ? floats(results[0]) : std::vector<float>();
  }
  std::unique_ptr<Program> program;
  Scope scope;
  std::unique_ptr<PreparedProgram> prepared;
};

NamedValues image(std::initializer_list<int64_t> dims, std::vector<float> values) {
  NamedValues feeds;
  feeds["x"] = tensor_value(dims, std::move(values));
  return feeds;
}

// A NaN never replaces a maximum, wherever it is in the window; also with the channels last.
TEST(GpuImages, MaximaIgnoreNan) {
  const std::string text = R"(# millrace
block 0 {
    var x: f32(1, 2, 2, 1)
    var y: f32(1, 1, 1, 1)
    pool2d X=x -> Out=y {pooling_type: "max", ksize: [2, 2], strides: [2, 2], paddings: [0, 0], data_format: "NHWC"}
  })";
  ImageRuns there(text, true);
  ImageRuns here(text, false);
  for (size_t at = 0; at < 4; ++at) {
    std::vector<float> values = {1, 3, -2, 2};
    values[at] = kNan;
    const NamedValues feeds = image({1, 2, 2, 1}, values);
    EXPECT_EQ(there.run(feeds, "y"), here.run(feeds, "y")) << at;
  }
  EXPECT_THAT(there.prepared->plan_text(), HasSubstr("on the cpu: 0"));
}

// A position outside of the image makes the image NaN; others stay as they are.
TEST(GpuImages, PositionsOutsideOfAnImageGiveNan) {
  ImageRuns there(R"(# millrace
block 0 {
    var x: f32(1, 2, 1, 1)
    var at: i32(1, 2, 1, 1)
    var y: f32(1, 2, 2, 2)
    unpool X=x Indices=at -> Out=y {ksize: [2, 2], strides: [2, 2], paddings: [0, 0], unpooling_type: "max"}
  })",
                  true);
  NamedValues feeds = image({1, 2, 1, 1}, {5, 6});
  Tensor& at = feeds["at"].as<Tensor>();
  ASSERT_TRUE(at.resize(DType::kInt32, {1, 2, 1, 1}).ok());
  at.data<int32_t>()[0] = 4;
  at.data<int32_t>()[1] = 3;
  const std::vector<float> found = there.run(feeds, "y");
  ASSERT_EQ(found.size(), 8U);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(found[i])) << i;
  EXPECT_EQ(std::vector<float>(found.begin() + 4, found.end()), std::vector<float>({0, 0, 0, 6}));
}

// Tables of weights belong to sizes: they are made again for others.
TEST(GpuImages, InterpolationsFollowSizesThatChange) {
  const std::string text = R"(# millrace
block 0 {
    var x: f32(1, 1, -1, -1)
    var y: f32(1, 1, -1, -1)
    bilinear_interp_v2 X=x -> Out=y {scale: [2.0, 2.0], interp_method: "bilinear", align_corners: false, align_mode: 0}
  })";
  ImageRuns there(text, true);
  ImageRuns here(text, false);
  for (const int64_t width : {2, 3, 2, 4, 3, 3, 3, 2}) {
    std::vector<float> values;
    for (int64_t i = 0; i < 2 * width; ++i) values.push_back(static_cast<float>(i * i % 7));
    const NamedValues feeds = image({1, 1, 2, width}, values);
    const std::vector<float> found = there.run(feeds, "y");
    const std::vector<float> expected = here.run(feeds, "y");
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
  }
  EXPECT_THAT(there.prepared->plan_text(), HasSubstr("on the cpu: 0"));
}

}  // namespace
}  // namespace millrace::executor
