// Exchanges between ranks from the memory of their devices: always on emulated devices, and by NCCL
// between the GPUs of the machine if there are any.

#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/tensor/tensor.h"
#include "kernels/gpu/communicator.h"
#include "kernels/gpu/host_device.h"
#include "kernels/gpu/module.h"

namespace millrace::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Devices = std::vector<std::shared_ptr<Device>>;
using Communicators = std::vector<std::unique_ptr<Communicator>>;

constexpr int64_t kPatienceMs = 60'000;

Devices emulated_devices(int count) {
  Devices devices;
  for (int i = 0; i < count; ++i) devices.push_back(open_host_device());
  return devices;
}

void on_each_rank(int size, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&body, rank] { body(rank); });
}

// Creates one rank per device and connects them.
Communicators joined(const Devices& devices, int64_t timeout_ms = kPatienceMs) {
  const auto size = static_cast<int>(devices.size());
  const StatusOr<Collectives*> first = devices[0]->collectives();
  EXPECT_TRUE(first.ok()) << first.status().to_string();
  const StatusOr<CommunicatorId> id = (*first)->make_id();
  EXPECT_TRUE(id.ok()) << id.status().to_string();
  Communicators communicators(devices.size());
  on_each_rank(size, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    StatusOr<Collectives*> own = devices[r]->collectives();
    ASSERT_TRUE(own.ok()) << own.status().to_string();
    auto made = (*own)->join(
        *id,
        {.rank = rank, .size = size, .join_timeout_ms = kPatienceMs, .timeout_ms = timeout_ms});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    communicators[r] = *std::move(made);
  });
  return communicators;
}

// Elements in the memory of a device.
template <typename T>
class OnDevice {
 public:
  OnDevice(Device& device, const std::vector<T>& values)
      : device_(device), count_(values.size()), data_(*device.allocate(bytes())) {
    const auto* const from = reinterpret_cast<const std::byte*>(values.data());
    EXPECT_TRUE(device.copy_in(from, data_, bytes()).ok());
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { device_.release(data_); }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] int64_t bytes() const { return static_cast<int64_t>(count_ * sizeof(T)); }
  [[nodiscard]] std::vector<float> values() const {
    std::vector<T> copy(count_);
    const Status status =
        device_.copy_out(data_, reinterpret_cast<std::byte*>(copy.data()), bytes());
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::vector<float> values;
    values.reserve(count_);
    for (const T& value : copy) values.push_back(static_cast<float>(value));
    return values;
  }

 private:
  Device& device_;
  size_t count_;
  std::byte* data_;
};

// Small whole numbers, so that every order of combining produces the same result in every type.
float given(int rank, int64_t index) {
  return static_cast<float>((int64_t{rank} * 3 + index * 5) % 4 + 1);
}
float combined(Reduction reduction, int size, int64_t index) {
  float result = given(0, index);
  for (int rank = 1; rank < size; ++rank) {
    const float value = given(rank, index);
    if (reduction == Reduction::kSum) result += value;
    if (reduction == Reduction::kProd) result *= value;
    if (reduction == Reduction::kMax) result = std::max(result, value);
    if (reduction == Reduction::kMin) result = std::min(result, value);
  }
  return result;
}

template <typename T>
std::vector<T> given_by(int rank, int64_t count) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(given(rank, i)));
  return values;
}
std::vector<float> list(int64_t count, const std::function<float(int64_t)>& element) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(element(i));
  return values;
}

Status all_reduce(Communicator& ranks, DType dtype, std::byte* data, int64_t count,
                  Reduction reduction) {
  return ranks.start(
      {.kind = CollectiveKind::kAllReduce, .dtype = dtype, .reduction = reduction, .count = count},
      data, data);
}

Status broadcast(Communicator& ranks, std::byte* data, int64_t bytes, int root) {
  return ranks.start({.kind = CollectiveKind::kBroadcast, .root = root, .count = bytes}, data,
                     data);
}

// One rank of a test of all calls with one type.
template <typename T>
class RankOfType {
 public:
  RankOfType(Device& device, Communicator& communicator, DType dtype)
      : device_(device), ranks_(communicator), dtype_(dtype) {}

  void check(int64_t count) {
    for (const Reduction reduction :
         {Reduction::kSum, Reduction::kProd, Reduction::kMax, Reduction::kMin})
      check_reduction(count, reduction);
    check_moves(count);
  }

 private:
  void check_reduction(int64_t count, Reduction reduction) {
    const int size = ranks_.size();
    const int root = static_cast<int>(count % size);
    const auto own = given_by<T>(ranks_.rank(), count);
    const auto everything = [&](int64_t i) { return combined(reduction, size, i); };
    const OnDevice<T> all(device_, own);
    expect_ok(all_reduce(ranks_, dtype_, all.data(), count, reduction));
    const OnDevice<T> at_root(device_, own);
    expect_ok(ranks_.start({.kind = CollectiveKind::kReduce,
                            .dtype = dtype_,
                            .reduction = reduction,
                            .root = root,
                            .count = count},
                           at_root.data(), at_root.data()));
    const OnDevice<T> pieces(device_, given_by<T>(ranks_.rank(), count * size));
    const OnDevice<T> piece(device_, std::vector<T>(static_cast<size_t>(count)));
    expect_ok(ranks_.start({.kind = CollectiveKind::kReduceScatter,
                            .dtype = dtype_,
                            .reduction = reduction,
                            .count = count},
                           pieces.data(), piece.data()));
    expect_ok(ranks_.wait());
    EXPECT_EQ(all.values(), list(count, everything));
    EXPECT_EQ(at_root.values(), list(count, [&](int64_t i) {
                return ranks_.rank() == root ? everything(i) : given(ranks_.rank(), i);
              }));
    EXPECT_EQ(piece.values(),
              list(count, [&](int64_t i) { return everything(ranks_.rank() * count + i); }));
  }

  void check_moves(int64_t count) {
    const int size = ranks_.size();
    const auto own = given_by<T>(ranks_.rank(), count);
    for (int root = 0; root < size; ++root) {
      const OnDevice<T> data(device_, own);
      expect_ok(broadcast(ranks_, data.data(), data.bytes(), root));
      expect_ok(ranks_.wait());
      EXPECT_EQ(data.values(), list(count, [&](int64_t i) { return given(root, i); }));
    }
    const OnDevice<T> part(device_, own);
    const OnDevice<T> all(device_, std::vector<T>(static_cast<size_t>(count * size)));
    expect_ok(ranks_.start({.kind = CollectiveKind::kAllGather, .count = part.bytes()}, part.data(),
                           all.data()));
    expect_ok(ranks_.wait());
    EXPECT_EQ(all.values(), list(count * size, [&](int64_t i) {
                return given(static_cast<int>(i / count), i % count);
              }));
  }

  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }

  Device& device_;
  Communicator& ranks_;
  DType dtype_;
};

void check_all(const Devices& devices) {
  const Communicators communicators = joined(devices);
  on_each_rank(static_cast<int>(devices.size()), [&](int rank) {
    Device& device = *devices[static_cast<size_t>(rank)];
    Communicator& own = *communicators[static_cast<size_t>(rank)];
    for (const int64_t count : {1, 7, 1000}) {
      RankOfType<float>(device, own, DType::kFloat32).check(count);
      RankOfType<double>(device, own, DType::kFloat64).check(count);
      RankOfType<Float16>(device, own, DType::kFloat16).check(count);
      RankOfType<Bfloat16>(device, own, DType::kBfloat16).check(count);
      RankOfType<int32_t>(device, own, DType::kInt32).check(count);
      RankOfType<int64_t>(device, own, DType::kInt64).check(count);
      RankOfType<uint8_t>(device, own, DType::kUint8).check(count);
    }
    // products of signed 8-bit numbers: few ranks only, or they overflow
    if (own.size() <= 3) RankOfType<int8_t>(device, own, DType::kInt8).check(7);
  });
}

TEST(EmulatedCollectives, AnswerEveryCallWithEveryType) {
  for (const int size : {1, 2, 3, 4}) check_all(emulated_devices(size));
}

TEST(EmulatedCollectives, NothingIsExchangedForNoElements) {
  const Devices devices = emulated_devices(2);
  const Communicators ranks = joined(devices);
  EXPECT_TRUE(all_reduce(*ranks[0], DType::kFloat32, nullptr, 0, Reduction::kSum).ok());
  EXPECT_TRUE(ranks[0]->wait().ok());
}

TEST(EmulatedCollectives, NameTheRankThatDoesNotComeWithinTheDeadline) {
  const Devices devices = emulated_devices(3);
  const Communicators ranks = joined(devices, 1000);
  on_each_rank(3, [&](int rank) {
    if (rank == 1) return;
    Communicator& own = *ranks[static_cast<size_t>(rank)];
    const OnDevice<float> data(*devices[static_cast<size_t>(rank)], {1, 2});
    const Status status = all_reduce(own, DType::kFloat32, data.data(), 2, Reduction::kSum);
    EXPECT_EQ(status.code(), StatusCode::kDistributed);
    EXPECT_THAT(status.to_string(), HasSubstr("waited 1000 ms for rank 1, which has not arrived"));
    EXPECT_THAT(
        status.to_string(),
        HasSubstr(fmt::format("rank {} of 3 in all_reduce (sum) of 2 elements of f32", rank)));
    EXPECT_THAT(own.wait().message(), HasSubstr("waited 1000 ms"));
    EXPECT_THAT(broadcast(own, data.data(), 8, 0).to_string(),
                AllOf(HasSubstr("broken by: "), HasSubstr("waited 1000 ms for rank 1")));
  });
  // the late rank gets the reason
  const OnDevice<float> data(*devices[1], {1, 2});
  EXPECT_THAT(all_reduce(*ranks[1], DType::kFloat32, data.data(), 2, Reduction::kSum).message(),
              HasSubstr("another rank has failed: waited 1000 ms"));
}

TEST(EmulatedCollectives, NoticeRanksThatLeaveAndRanksThatFail) {
  const Devices devices = emulated_devices(2);
  const OnDevice<float> data(*devices[0], {1});
  Communicators ranks = joined(devices);
  ranks[1].reset();
  EXPECT_THAT(broadcast(*ranks[0], data.data(), 4, 0).message(),
              HasSubstr("lost rank 1: it has left"));
  ranks = joined(devices);
  ranks[1]->abort({StatusCode::kExecution, "op 'mul' has failed"});
  EXPECT_THAT(broadcast(*ranks[0], data.data(), 4, 0).message(), HasSubstr("op 'mul' has failed"));
}

TEST(EmulatedCollectives, NoticeThatRanksDoNotAgree) {
  const Devices devices = emulated_devices(2);
  const Communicators ranks = joined(devices);
  on_each_rank(2, [&](int rank) {
    const OnDevice<float> data(*devices[static_cast<size_t>(rank)], {1, 2, 3});
    const Status status = all_reduce(*ranks[static_cast<size_t>(rank)], DType::kFloat32,
                                     data.data(), rank == 0 ? 2 : 3, Reduction::kMax);
    EXPECT_EQ(status.code(), StatusCode::kDistributed);
    EXPECT_THAT(status.message(), HasSubstr("all_reduce (max) of 2 elements of f32"));
    EXPECT_THAT(status.message(), HasSubstr("all_reduce (max) of 3 elements of f32"));
  });
}

TEST(EmulatedCollectives, RefuseBadArguments) {
  const Devices devices = emulated_devices(1);
  const OnDevice<float> data(*devices[0], {1});
  const auto alone = [&] { return std::move(joined(devices)[0]); };
  EXPECT_THAT(all_reduce(*alone(), DType::kInt16, data.data(), 1, Reduction::kSum).message(),
              HasSubstr("devices do not combine elements of type i16"));
  EXPECT_THAT(broadcast(*alone(), data.data(), 4, 1).message(),
              HasSubstr("expected a root in [0, 1), found 1"));
  EXPECT_THAT(all_reduce(*alone(), DType::kFloat32, data.data(), -1, Reduction::kSum).message(),
              HasSubstr("expected a count that is not negative, found -1"));
}

TEST(EmulatedCollectives, NameThoseWhoDoNotJoin) {
  const auto device = open_host_device();
  Collectives& collectives = **device->collectives();
  const CommunicatorId id = *collectives.make_id();
  const auto late = collectives.join(id, {.rank = 1, .size = 3, .join_timeout_ms = 50});
  EXPECT_EQ(late.status().code(), StatusCode::kDistributed);
  EXPECT_THAT(late.status().to_string(), HasSubstr("waited 50 ms for ranks 0, 2"));
  EXPECT_THAT(late.status().to_string(), HasSubstr("rank 1 of 3 joins the others"));
  EXPECT_THAT(collectives.join(id, {.rank = 3, .size = 3}).status().message(),
              HasSubstr("expected a rank in [0, 3), found 3"));
  CommunicatorId foreign;
  fmt::format_to(foreign.bytes.data(), "emulated 1 1");
  EXPECT_EQ(collectives.join(foreign, {.rank = 0, .size = 2}).status().code(),
            StatusCode::kUnimplemented);
}

// Needs no GPU: the library and all its functions are found, and it returns its version.
TEST(Nccl, LoadsWithAllFunctions) {
  const StatusOr<std::string> found = find_gpu_collectives();
  if (!found.ok()) {
    EXPECT_EQ(found.status().code(), StatusCode::kUnimplemented) << found.status().to_string();
    GTEST_SKIP() << found.status().message();
  }
  EXPECT_THAT(*found, ::testing::MatchesRegex("NCCL 2\\.[0-9]+\\.[0-9]+"));
}

// One rank per GPU, in threads; one rank if there is one GPU.
TEST(Nccl, AnswersEveryCallWithEveryType) {
  const StatusOr<std::vector<DeviceInfo>> gpus = list_gpus();
  if (!gpus.ok()) GTEST_SKIP() << gpus.status().message();
  if (const auto found = find_gpu_collectives(); !found.ok())
    GTEST_SKIP() << found.status().message();
  const auto most = std::min<size_t>(gpus->size(), 4);
  for (size_t size = 1; size <= most; ++size) {
    Devices devices;
    for (size_t i = 0; i < size; ++i) {
      StatusOr<std::shared_ptr<Device>> device = open_gpu(static_cast<int>(i), {});
      ASSERT_TRUE(device.ok()) << device.status().to_string();
      devices.push_back(*std::move(device));
    }
    check_all(devices);
  }
}

TEST(Nccl, GivesUpOnRanksThatDoNotCome) {
  const StatusOr<std::shared_ptr<Device>> device = open_gpu(0, {});
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  const StatusOr<Collectives*> collectives = (*device)->collectives();
  if (!collectives.ok()) GTEST_SKIP() << collectives.status().message();
  const StatusOr<CommunicatorId> id = (*collectives)->make_id();
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  const auto alone = (*collectives)->join(*id, {.rank = 0, .size = 2, .join_timeout_ms = 500});
  EXPECT_EQ(alone.status().code(), StatusCode::kDistributed);
  EXPECT_THAT(alone.status().to_string(), HasSubstr("did not respond within 500 ms"));
}

}  // namespace
}  // namespace millrace::gpu
