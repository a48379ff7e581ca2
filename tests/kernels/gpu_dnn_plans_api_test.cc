// cuDNN itself plans convolutions as DnnEngines describes them. That needs no GPU: a description of
// a GPU takes the place of the handle. Skipped where the library is not installed.

#include <string>

#include <cudnn.h>
#include <gtest/gtest.h>

#include "kernels/gpu/cuda/dnn_engines.h"

namespace millrace::gpu {
namespace {

// An H200, in the library's own words.
constexpr std::string_view kGpu =
    R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536, "multiProcessorCount": 132, "warpSize": 32,
        "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
        "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
        "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 9013, "isTccDriver": 0,
        "supportCoopLaunch": 1, "totalGlobalMem": 150109880320, "smClockRateKHz": 1980000,
        "memClockRateKHz": 3201000, "l2CacheSize": 62914560, "cudaDeviceId": 0, "deviceVer": 900,
        "driverVer": 13000, "deviceName": "NVIDIA H200"})";
constexpr auto kNameOfHeuristicGpu = static_cast<dnn::Name>(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
constexpr auto kNameOfPlanGpu = static_cast<dnn::Name>(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);

// The library's functions, and the description of the GPU.
struct Library {
  dnn::EnginesApi api{};
  dnn::Backend gpu = nullptr;
};
Library& library() {
  static Library library;
  return library;
}

// Where a graph or a plan gets the handle, it gets the description or nothing.
int set_attribute(dnn::Backend of, dnn::Name name, dnn::Type type, int64_t count,
                  const void* values) {
  const dnn::EnginesApi& api = library().api;
  const auto set_gpu = [&](dnn::Name to) {
    return api.SetAttribute(of, to, dnn::Type::kDescriptor, 1, &library().gpu);
  };
  if (name == dnn::Name::kGraphHandle) return dnn::kSuccess;
  if (name == dnn::Name::kPlanHandle) return set_gpu(kNameOfPlanGpu);
  const int status = api.SetAttribute(of, name, type, count, values);
  return name == dnn::Name::kHeuristicGraph && status == dnn::kSuccess
             ? set_gpu(kNameOfHeuristicGpu)
             : status;
}

// False if the library is not there or cannot plan without a GPU.
bool load_library() {
  if (library().gpu != nullptr) return true;
  const StatusOr<SharedLibrary> found =
      SharedLibrary::open({"libcudnn.so.9", "/usr/local/cuda/lib/libcudnn.so.9",
                           "/usr/local/cuda/lib64/libcudnn.so.9"});
  if (!found.ok()) return false;
  const StatusOr<dnn::EnginesApi> loaded = DnnEngines::load(*found);
  if (!loaded.ok()) return false;
  const dnn::EnginesApi& api = *loaded;
  dnn::Backend gpu = nullptr;
  const auto text = static_cast<dnn::Name>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
  const bool described =
      api.CreateDescriptor(static_cast<dnn::Kind>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), &gpu) ==
          dnn::kSuccess &&
      api.SetAttribute(gpu, text, static_cast<dnn::Type>(CUDNN_TYPE_CHAR), kGpu.size(),
                       kGpu.data()) == dnn::kSuccess &&
      api.Finalize(gpu) == dnn::kSuccess;
  if (described) library() = {api, gpu};
  return described;
}

struct Shape {
  int64_t channels, results, groups, size, window, stride, before, out;
};

class DnnPlans : public testing::TestWithParam<Shape> {};

TEST_P(DnnPlans, AreMadeForAllTypes) {
  if (!load_library()) GTEST_SKIP() << "no libcudnn.so.9 that plans without a GPU";
  dnn::EnginesApi api = library().api;
  api.SetAttribute = set_attribute;
  const Shape shape = GetParam();
  Convolution c;
  c.batch = 16;
  c.in_channels = shape.channels;
  c.out_channels = shape.results;
  c.groups = shape.groups;
  for (int dim = 0; dim < 2; ++dim) {
    c.in[dim] = shape.size;
    c.kernel[dim] = shape.window;
    c.stride[dim] = shape.stride;
    c.before[dim] = shape.before;
    c.out[dim] = shape.out;
  }
  struct Kind {
    const char* name;
    Element element;
    bool tf32;
  };
  for (const Kind& kind : {Kind{"f32", Element::kFloat32, false},
                           {"tf32", Element::kFloat32, true},
                           {"f16", Element::kFloat16, false},
                           {"bf16", Element::kBfloat16, false}}) {
    const DnnEngines engines(api, nullptr, kind.tf32);
    c.element = kind.element;
    for (const auto what : {Convolution::What::kOutput, Convolution::What::kInputGradient,
                            Convolution::What::kFilterGradient}) {
      c.what = what;
      const StatusOr<std::vector<EnginePlan>> plans = engines.plans(c);
      ASSERT_TRUE(plans.ok()) << plans.status().to_string();
      EXPECT_FALSE(plans->empty()) << kind.name << " " << static_cast<int>(what);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DnnPlans,
                         testing::Values(Shape{64, 64, 1, 16, 3, 1, 1, 16},   // 3 x 3
                                         Shape{64, 256, 1, 16, 1, 1, 0, 16},  // a product
                                         Shape{128, 128, 1, 16, 3, 2, 1, 8},  // stride 2
                                         Shape{3, 64, 1, 64, 7, 2, 3, 32},    // a first filter
                                         Shape{64, 64, 4, 32, 3, 1, 1, 32},   // groups
                                         Shape{32, 32, 32, 56, 3, 1, 1, 56},  // depthwise
                                         Shape{8, 8, 1, 9, 2, 1, 0, 9}));     // uneven padding

}  // namespace
}  // namespace millrace::gpu
