// Every function of the CUDA device, on the stand-in, compared with the emulated device where both
// compute. Runs with and without the libraries for products and convolutions.

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/gpu/host_device.h"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/module.h"
#include "tests/cuda_standin/runtime.h"

namespace millrace::gpu {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<Device> open_cuda(int ordinal = 0, const DeviceOptions& options = {}) {
  StatusOr<std::shared_ptr<Device>> device = open_gpu(ordinal, options);
  EXPECT_TRUE(device.ok()) << device.status().to_string();
  return *device;
}
bool has_libraries(const Device& device) {
  return !device.info().libraries.empty();
}

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> result(static_cast<size_t>(count));
  for (float& value : result) value = values(random);
  return result;
}

// Floats in device memory.
class Array {
 public:
  Array(Device& device, const std::vector<float>& values) : device_(device), count_(values.size()) {
    StatusOr<std::byte*> data = device.allocate(bytes());
    EXPECT_TRUE(data.ok());
    data_ = *data;
    EXPECT_TRUE(
        device.copy_in(reinterpret_cast<const std::byte*>(values.data()), data_, bytes()).ok());
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { device_.release(data_); }
  [[nodiscard]] int64_t bytes() const { return static_cast<int64_t>(count_ * sizeof(float)); }
  [[nodiscard]] float* data() const { return reinterpret_cast<float*>(data_); }
  [[nodiscard]] std::byte* start() const { return data_; }
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> result(count_);
    const Status status =
        device_.copy_out(data_, reinterpret_cast<std::byte*>(result.data()), bytes());
    EXPECT_TRUE(status.ok()) << status.to_string();
    return result;
  }

 private:
  Device& device_;
  size_t count_;
  std::byte* data_ = nullptr;
};

void expect_close(const std::vector<float>& a, const std::vector<float>& b,
                  float rounding = 1e-5F) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], rounding * std::max(1.0F, std::abs(b[i]))) << i;
}

// The difference between neighbours of 1.
float rounding_of(Element element) {
  return element == Element::kFloat32 ? 1e-5F : element == Element::kFloat16 ? 0x1p-10F : 0x1p-7F;
}

constexpr Element kElements[] = {Element::kFloat32, Element::kFloat16, Element::kBfloat16};

// The bytes of numbers that are stored in that type, as floats: two elements make one.
template <typename T>
std::vector<float> packed_as(const std::vector<float>& values) {
  std::vector<float> result((values.size() * sizeof(T) + sizeof(float) - 1) / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto stored = static_cast<T>(values[i]);
    std::memcpy(reinterpret_cast<std::byte*>(result.data()) + i * sizeof(T), &stored,
                sizeof stored);
  }
  return result;
}
template <typename T>
std::vector<float> unpacked_as(const std::vector<float>& bytes, int64_t count) {
  std::vector<float> result(static_cast<size_t>(count));
  for (size_t i = 0; i < result.size(); ++i) {
    T stored{};
    std::memcpy(&stored, reinterpret_cast<const std::byte*>(bytes.data()) + i * sizeof(T),
                sizeof stored);
    result[i] = static_cast<float>(stored);
  }
  return result;
}
std::vector<float> packed(Element element, const std::vector<float>& values) {
  return element == Element::kFloat32   ? values
         : element == Element::kFloat16 ? packed_as<Half>(values)
                                        : packed_as<Brain>(values);
}
std::vector<float> unpacked(Element element, const std::vector<float>& bytes, int64_t count) {
  return element == Element::kFloat32   ? bytes
         : element == Element::kFloat16 ? unpacked_as<Half>(bytes, count)
                                        : unpacked_as<Brain>(bytes, count);
}

TEST(CudaDevice, SaysThatItIsAStandIn) {
  const StatusOr<std::vector<DeviceInfo>> all = list_gpus();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_THAT(all->front().name, HasSubstr("stand-in"));
  EXPECT_EQ(all->front().capability, "9.0");
  EXPECT_EQ(all->front().driver, "13.0");
  EXPECT_EQ(all->front().memory_bytes, int64_t{4} << 30U);
  const auto device = open_cuda();
  if (has_libraries(*device)) {
    EXPECT_THAT(device->info().libraries, ElementsAre("cuBLASLt 13.0.0", "cuDNN 9.19.0"));
  } else {
    EXPECT_THAT(device->info().missing,
                ElementsAre("cuBLASLt: libcublasLt.so.13 has no function cublasLtCreate",
                            "cuDNN: libcudnn.so.9 has no function cudnnGetVersion"));
    const StatusOr<Collectives*> none = device->collectives();
    EXPECT_EQ(none.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(none.status().message(), HasSubstr("libnccl.so.2: file too short"));
    EXPECT_EQ(find_gpu_collectives().status().message(), none.status().message());
  }
  const int count = static_cast<int>(all->size());
  EXPECT_EQ(open_gpu(count, {}).status().message(),
            fmt::format("there is no GPU {}: the driver sees {}", count, count));
  EXPECT_EQ(open_gpu(-1, {}).status().code(), StatusCode::kUnimplemented);
}

TEST(CudaDevice, CopiesAndFills) {
  const auto device = open_cuda();
  std::vector<float> given = {1, 2, 3, 4};
  const Array a(*device, given);
  given[0] = 9;  // may be changed at once
  const Array b(*device, {0, 0, 0, 0});
  EXPECT_TRUE(device->copy(a.start(), b.start(), a.bytes()).ok());
  EXPECT_TRUE(each(*device, Fill{b.data() + 2, 7.0F}, 2).ok());
  EXPECT_TRUE(device->wait().ok());
  EXPECT_THAT(b.values(), ElementsAre(1, 2, 7, 7));
}

TEST(CudaDevice, RunsKernelsOfManyBlocks) {
  const auto device = open_cuda();
  const int64_t count = 256 * 16384 + 1000;  // some threads loop
  const Array x(*device, std::vector<float>(static_cast<size_t>(count), 1.0F));
  EXPECT_TRUE(each(*device, Fill{x.data(), 2.0F}, count).ok());
  const Array y(*device, {0, 0});
  EXPECT_TRUE(rows(*device, SumMiddle{x.data(), y.data(), count / 2, 2, 1, 1.0F}, 2).ok());
  const auto half = static_cast<float>(count);
  EXPECT_THAT(y.values(), ElementsAre(half, half));
}

TEST(CudaDevice, RowsHaveTheSameResultsAsOnTheEmulatedDevice) {
  const auto cuda = open_cuda();
  const auto host = open_host_device();
  const std::vector<float> given = random_floats(5 * 300, 1);
  std::vector<std::vector<float>> results;
  for (const auto& device : {cuda, host}) {
    const Array x(*device, given);
    const Array y(*device, given);
    EXPECT_TRUE(rows(*device, Softmax{x.data(), y.data(), 300, 1, false}, 5).ok());
    results.push_back(y.values());
  }
  expect_close(results[0], results[1]);
}

TEST(CudaDevice, ReportsFullMemory) {
  const auto device = open_cuda();
  const StatusOr<std::byte*> most = device->allocate(int64_t{1} << 40U);
  EXPECT_EQ(most.status().code(), StatusCode::kResource);
  EXPECT_THAT(most.status().message(),
              AllOf(HasSubstr("the GPU has 4294967296 bytes, of which"), HasSubstr("are free")));
  const Array works(*device, {1});  // the error does not last
  EXPECT_TRUE(each(*device, Fill{works.data(), 3.0F}, 1).ok());
  EXPECT_THAT(works.values(), ElementsAre(3));
  const auto limited = open_cuda(0, {.memory_limit = 1000});
  const Array some(*limited, std::vector<float>(200));
  EXPECT_EQ(limited->allocate(201).status().message(), "the limit is 1000 bytes");
}

TEST(CudaDevice, FreesEverything) {
  {
    const auto device = open_cuda();
    const Array a(*device, {1, 2, 3, 4});
    const Array c(*device, {0, 0, 0, 0});
    EXPECT_TRUE(
        device
            ->multiply(
                {.a = a.data(), .b = a.data(), .c = c.data(), .rows = 2, .inner = 2, .columns = 2})
            .ok());
    EXPECT_TRUE(device->wait().ok());
  }
  const standin::Live left = standin::live();
  EXPECT_EQ(left.allocations, 0U);
  EXPECT_EQ(left.streams, 0U);
  EXPECT_EQ(left.handles, 0U);
}

// Several devices in one thread: each call selects its device.
TEST(CudaDevice, SeveralInOneThread) {
  const auto first = open_cuda(0);
  const auto second = open_cuda(1);
  const Array a(*first, {1, 2});
  const Array b(*second, {3, 4});
  EXPECT_TRUE(each(*first, Fill{a.data(), 5.0F}, 1).ok());
  EXPECT_TRUE(each(*second, Fill{b.data(), 6.0F}, 1).ok());
  const MatrixProduct product{
      .a = a.data(), .b = a.data(), .c = a.data() + 1, .rows = 1, .inner = 1, .columns = 1};
  EXPECT_TRUE(first->multiply(product).ok());
  EXPECT_THAT(a.values(), ElementsAre(5, 25));
  EXPECT_THAT(b.values(), ElementsAre(6, 4));
}

// Waiting for an exchange leaves "device not ready" as the last error of the thread. It is not an
// error of the next launch.
TEST(CudaDevice, ALaunchDoesNotReportAnOlderError) {
  const auto device = open_cuda();
  if (!has_libraries(*device)) GTEST_SKIP() << "no NCCL";
  Collectives& collectives = **device->collectives();
  EXPECT_EQ(device->info().libraries.back(), "NCCL 2.28.0");
  const Array data(*device, {1, 2});
  {
    StatusOr<std::unique_ptr<Communicator>> alone =
        collectives.join(*collectives.make_id(), {.rank = 0, .size = 1});
    ASSERT_TRUE(alone.ok()) << alone.status().to_string();
    EXPECT_TRUE((*alone)
                    ->start({.kind = CollectiveKind::kBroadcast, .count = data.bytes()},
                            data.start(), data.start())
                    .ok());
    EXPECT_TRUE((*alone)->wait().ok());
  }
  const Status launched = each(*device, Fill{data.data(), 3.0F}, 1);
  EXPECT_TRUE(launched.ok()) << launched.to_string();
  EXPECT_THAT(data.values(), ElementsAre(3, 2));
  EXPECT_EQ(collectives.join({}, {.rank = 0, .size = 1}).status().code(),
            StatusCode::kInvalidArgument);  // no id of NCCL
  EXPECT_EQ(collectives.join({}, {.rank = 1, .size = 1}).status().message(),
            "expected a rank in [0, 1), found 1");
}

// One product on both devices.
void check_product(Device& cuda, Device& host, MatrixProduct p, uint32_t seed) {
  const int64_t a_count = (p.batch - 1) * p.a_stride + p.rows * p.inner;
  const int64_t b_count = (p.batch - 1) * p.b_stride + p.inner * p.columns;
  const int64_t c_count = (p.batch - 1) * p.c_stride + p.rows * p.columns;
  std::vector<std::vector<float>> results;
  for (Device* const device : {&cuda, &host}) {
    const Array a(*device, packed(p.element, random_floats(a_count, seed)));
    const Array b(*device, packed(p.element, random_floats(b_count, seed + 1)));
    const Array c(*device, packed(p.element, random_floats(c_count, seed + 2)));
    p.a = a.data();
    p.b = b.data();
    p.c = c.data();
    const Status status = device->multiply(p);
    EXPECT_TRUE(status.ok()) << status.to_string();
    results.push_back(unpacked(p.element, c.values(), c_count));
  }
  expect_close(results[0], results[1], rounding_of(p.element));
}

TEST(CudaDevice, ProductsOfManyShapes) {
  const auto host = open_host_device();
  for (const bool tf32 : {false, true}) {
    const auto cuda = open_cuda(0, {.tf32 = tf32});
    std::mt19937 random(7);
    const auto draw = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
    for (uint32_t i = 0; i < 60; ++i) {
      MatrixProduct p{.rows = draw(9), .inner = draw(17), .columns = draw(9)};
      p.transpose_a = i % 2 == 1;
      p.transpose_b = i / 2 % 2 == 1;
      p.alpha = i % 3 == 0 ? 0.5F : 1.0F;
      p.beta = i % 5 == 0 ? 1.0F : 0.0F;
      p.batch = i % 4 == 0 ? draw(4) : 1;
      p.a_stride = i % 8 == 0 ? 0 : p.rows * p.inner;
      p.b_stride = p.inner * p.columns;
      p.c_stride = p.rows * p.columns;
      for (const Element element : kElements) {
        p.element = element;
        check_product(*cuda, *host, p, i);
        check_product(*cuda, *host, p, i + 1000);  // by the cached plan
      }
    }
  }
}

TEST(CudaDevice, ProductsWithoutAnAlgorithmRunByMillracesKernel) {
  const auto cuda = open_cuda();
  const auto host = open_host_device();
  check_product(*cuda, *host, {.rows = 1, .inner = (1 << 20) + 1, .columns = 1, .alpha = 1e-3F}, 1);
}

Convolution make_convolution(std::mt19937& random) {
  const auto draw = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  Convolution c;
  c.batch = draw(2);
  c.groups = draw(2);
  c.in_channels = c.groups * draw(2);
  c.out_channels = c.groups * draw(3);
  for (int i = 0; i < 2; ++i) {
    c.kernel[i] = draw(3);
    c.stride[i] = draw(2);
    c.dilation[i] = draw(2);
    c.before[i] = draw(2) - 1;
    const int64_t reach = c.dilation[i] * (c.kernel[i] - 1) + 1;
    c.in[i] = reach + draw(5);
    c.out[i] = (c.in[i] + 2 * c.before[i] - reach) / c.stride[i] + 1;
  }
  return c;
}

void check_convolution(Device& cuda, Device& host, Convolution c, uint32_t seed) {
  for (const auto what : {Convolution::What::kOutput, Convolution::What::kInputGradient,
                          Convolution::What::kFilterGradient}) {
    c.what = what;
    std::vector<std::vector<float>> results;
    for (Device* const device : {&cuda, &host}) {
      const Array input(*device, packed(c.element, random_floats(c.input_count(), seed)));
      const Array filter(*device, packed(c.element, random_floats(c.filter_count(), seed + 1)));
      const Array output(*device, packed(c.element, random_floats(c.output_count(), seed + 2)));
      c.input = input.data();
      c.filter = filter.data();
      c.output = output.data();
      const Status status = device->convolve(c);
      EXPECT_TRUE(status.ok()) << status.to_string();
      const bool of_output = what == Convolution::What::kOutput;
      const bool of_input = what == Convolution::What::kInputGradient;
      results.push_back(unpacked(c.element,
                                 of_output  ? output.values()
                                 : of_input ? input.values()
                                            : filter.values(),
                                 of_output  ? c.output_count()
                                 : of_input ? c.input_count()
                                            : c.filter_count()));
    }
    expect_close(results[0], results[1], rounding_of(c.element));
  }
}

TEST(CudaDevice, ConvolutionsOfManyShapes) {
  const auto host = open_host_device();
  for (const bool tf32 : {false, true}) {
    const auto cuda = open_cuda(0, {.tf32 = tf32});
    std::mt19937 random(5);
    for (uint32_t i = 0; i < 25; ++i) {
      Convolution c = make_convolution(random);
      for (const Element element : kElements) {
        c.element = element;
        check_convolution(*cuda, *host, c, i);
        check_convolution(*cuda, *host, c, i + 1000);
      }
    }
  }
}

TEST(CudaDevice, UnevenPaddingAndConvolutionsThatCudnnLacks) {
  const auto cuda = open_cuda();
  const auto host = open_host_device();
  Convolution uneven;  // padding at the bottom and right only
  uneven.batch = uneven.in_channels = uneven.out_channels = 1;
  for (int i = 0; i < 2; ++i) {
    uneven.in[i] = 4;
    uneven.kernel[i] = 2;
    uneven.out[i] = 4;
  }
  check_convolution(*cuda, *host, uneven, 1);
  Convolution wide = uneven;  // cuDNN has no algorithm
  for (int i = 0; i < 2; ++i) {
    wide.dilation[i] = 9;
    wide.in[i] = 12;
    wide.out[i] = 3;
  }
  check_convolution(*cuda, *host, wide, 2);
}

// Joins two devices from two threads; exchange(rank, communicator, data) runs in each of them.
template <typename Exchange>
void with_two_ranks(const Exchange& exchange) {
  if (!has_libraries(*open_cuda())) GTEST_SKIP() << "no NCCL";
  const auto first = open_cuda(0);
  const CommunicatorId id = *(*first->collectives())->make_id();
  const auto run = [&](int rank) {
    const auto device = rank == 0 ? first : open_cuda(1);
    const Array data(*device, {1, 2});
    auto joined = (*device->collectives())->join(id, {.rank = rank, .size = 2, .timeout_ms = 300});
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
    exchange(rank, **joined, data);
  };
  std::jthread second(run, 1);
  run(0);
}

TEST(CudaDevice, ARankThatDoesNotExchangeIsGivenUp) {
  with_two_ranks([](int rank, Communicator& ranks, const Array& data) {
    if (rank == 1) return;
    EXPECT_TRUE(ranks.start({.count = data.bytes()}, data.start(), data.start()).ok());
    const Status status = ranks.wait();
    EXPECT_EQ(status.code(), StatusCode::kDistributed);
    EXPECT_THAT(status.message(),
                HasSubstr("not done after 300 ms, so a rank is lost or too slow"));
    EXPECT_FALSE(ranks.start({.count = 1}, data.start(), data.start()).ok());
  });
}

TEST(CudaDevice, ErrorsOfNcclContainItsMessage) {
  with_two_ranks([](int rank, Communicator& ranks, const Array& data) {
    EXPECT_TRUE(ranks.start({.count = 1 + rank}, data.start(), data.start()).ok());
    const Status status = ranks.wait();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.to_string(), AllOf(HasSubstr("NCCL: exchanging values: invalid usage"),
                                          HasSubstr("ranks make different calls")));
  });
}

TEST(CudaDevice, ErrorsOfLibrariesAreReported) {
  const auto device = open_cuda();
  if (!has_libraries(*device)) GTEST_SKIP() << "no libraries";
  const Array data(*device, std::vector<float>(64));
  MatrixProduct overlapping{.a = data.data(), .b = data.data(), .c = data.data() + 32};
  overlapping.rows = overlapping.inner = overlapping.columns = overlapping.batch = 2;
  const Status product = device->multiply(overlapping);
  EXPECT_EQ(product.code(), StatusCode::kExecution);
  EXPECT_EQ(product.message(), "cuBLASLt: choosing an algorithm: status 7");
  Convolution uneven;  // three output channels in two groups
  uneven.batch = 1;
  uneven.in_channels = uneven.groups = 2;
  uneven.out_channels = 3;
  for (int i = 0; i < 2; ++i) uneven.in[i] = uneven.out[i] = uneven.kernel[i] = 1;
  uneven.input = uneven.filter = uneven.output = data.data();
  const Status convolution = device->convolve(uneven);
  EXPECT_EQ(convolution.code(), StatusCode::kExecution);
  EXPECT_EQ(convolution.message(), "cuDNN: planning a convolution: CUDNN_STATUS_BAD_PARAM");
  uneven.what = static_cast<Convolution::What>(9);
  EXPECT_EQ(device->convolve(uneven).code(), StatusCode::kInternal);
}

// A failing kernel ends all work of its device; the process of this test ends as well.
TEST(CudaDevice, AnErrorOfQueuedWorkIsReportedByEveryLaterCall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [] {
    const auto device = open_cuda(0);
    StatusOr<std::byte*> data = device->allocate(4);
    EXPECT_TRUE(each(*device, Fill{reinterpret_cast<float*>(*data) + 4096, 1.0F}, 1).ok());
    const Status failed = device->wait();
    EXPECT_EQ(failed.code(), StatusCode::kExecution);
    EXPECT_THAT(failed.message(),
                AllOf(HasSubstr("CUDA: waiting for queued work: an illegal memory access"),
                      HasSubstr("cudaErrorIllegalAddress")));
    EXPECT_THAT(failed.hint(), HasSubstr("--check-nan"));
    EXPECT_FALSE(device->allocate(4).ok());
    EXPECT_FALSE(device->multiply({.rows = 1, .inner = 1, .columns = 1}).ok());
    Convolution small;
    small.batch = small.in_channels = small.out_channels = 1;
    small.in[0] = small.in[1] = small.out[0] = small.out[1] = 1;
    small.kernel[0] = small.kernel[1] = 1;
    EXPECT_FALSE(device->convolve(small).ok());
    EXPECT_FALSE(each(*device, Fill{nullptr, 1.0F}, 1).ok());
    EXPECT_FALSE(rows(*device, Softmax{nullptr, nullptr, 1, 1, false}, 1).ok());
    EXPECT_FALSE(device->copy(*data, *data, 4).ok());
    EXPECT_FALSE(list_gpus().ok());
    EXPECT_FALSE(open_gpu(0, {}).ok());
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(fail(), ::testing::ExitedWithCode(0), "illegal address in cudaLaunchKernelEx");
}

}  // namespace
}  // namespace millrace::gpu
