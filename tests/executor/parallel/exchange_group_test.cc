#include "executor/parallel/exchange_group.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/parallel/exchange_kernels.h"

namespace millrace::executor {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Calls body(device) on one thread per device.
template <typename Body>
void on_devices(int count, Body&& body) {
  std::vector<std::thread> threads;
  for (int d = 0; d < count; ++d) threads.emplace_back([&body, d] { body(d); });
  for (std::thread& thread : threads) thread.join();
}

// Values whose sums depend on the order in which they are added.
std::vector<float> part_of_exchange_group(int device, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i * 37 + static_cast<size_t>(device) * 101) % 1009) * 1e-3F +
                (device == 1 ? 1e4F : 0.0F);
  return values;
}

ExchangePart as_part(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), static_cast<int64_t>(values.size())};
}

TEST(ExchangeGroupTest, SumsInOrderOfDevicesWhoeverDoesIt) {
  constexpr int kDevices = 4;
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{200'001}}) {
    std::vector<float> expected = part_of_exchange_group(0, count);
    for (int d = 1; d < kDevices; ++d) {
      const std::vector<float> more = part_of_exchange_group(d, count);
      for (size_t i = 0; i < count; ++i) expected[i] += more[i];
    }
    ExchangeGroup group({.devices = kDevices, .exchanges = 2});
    std::vector<std::vector<float>> big(kDevices);
    std::vector<std::vector<float>> small(kDevices);
    for (int run = 0; run < 3; ++run) {
      group.reset();
      on_devices(kDevices, [&](int d) {
        const auto index = static_cast<size_t>(d);
        big[index] = part_of_exchange_group(d, count);
        small[index] = part_of_exchange_group(d, 3);
        const std::vector<ExchangePart> parts{as_part(big[index]), as_part(small[index])};
        ASSERT_TRUE(group.begin(d, 0, {}, DType::kFloat32, parts).ok());
        std::vector<float> own(8, static_cast<float>(d));
        const ExchangePart part = as_part(own);
        ASSERT_TRUE(group.begin(d, 1, {}, DType::kFloat32, {&part, 1}).ok());
        ASSERT_TRUE(group.end(d, 0).ok());
        ASSERT_TRUE(group.end(d, 1).ok());
        EXPECT_THAT(own, Each(6.0F));
      });
      for (int d = 0; d < kDevices; ++d) EXPECT_EQ(big[static_cast<size_t>(d)], expected);
    }
  }
}

TEST(ExchangeGroupTest, ReducesToOneAndBroadcastsFromOne) {
  ExchangeGroup group({.devices = 3, .exchanges = 2});
  group.reset();
  on_devices(3, [&](int d) {
    std::vector<float> sum(5, static_cast<float>(d + 1));
    std::vector<float> given(5, static_cast<float>(d * 10));
    const ExchangePart a = as_part(sum);
    const ExchangePart b = as_part(given);
    ASSERT_TRUE(group.begin(d, 0, {ExchangeKind::kReduce, 1}, DType::kFloat32, {&a, 1}).ok());
    ASSERT_TRUE(group.begin(d, 1, {ExchangeKind::kBroadcast, 2}, DType::kFloat32, {&b, 1}).ok());
    ASSERT_TRUE(group.end(d, 0).ok());
    ASSERT_TRUE(group.end(d, 1).ok());
    EXPECT_THAT(sum, Each(d == 1 ? 6.0F : static_cast<float>(d + 1)));
    EXPECT_THAT(given, Each(20.0F));
  });
}

TEST(ExchangeGroupTest, ServesManyRoundsOfOneKernel) {
  ExchangeGroup group({.devices = 3, .exchanges = 1});
  group.reset();
  on_devices(3, [&](int d) {
    KernelGroup member(group, d, 0);
    for (int round = 0; round < 500; ++round) {
      std::vector<double> values{static_cast<double>(d), static_cast<double>(round)};
      ASSERT_TRUE(member.all_reduce(values).ok());
      ASSERT_EQ(values[0], 3);
      ASSERT_EQ(values[1], 3.0 * round);
    }
  });
}

TEST(ExchangeGroupTest, EndsWaitsWhenADeviceFails) {
  ExchangeGroup group({.devices = 3, .exchanges = 1});
  for (int run = 0; run < 3; ++run) {
    group.reset();
    on_devices(3, [&](int d) {
      if (d == 2) return group.fail();
      std::vector<float> values(4);
      const ExchangePart part = as_part(values);
      Status status = group.begin(d, 0, {}, DType::kFloat32, {&part, 1});
      if (status.ok()) status = group.end(d, 0);
      EXPECT_EQ(status.code(), StatusCode::kDistributed);
    });
  }
}

TEST(ExchangeGroupTest, SaysWhoHasNotCome) {
  ExchangeGroup group({.devices = 2, .exchanges = 1, .timeout_ms = 20});
  group.reset();
  std::vector<float> values(4);
  const ExchangePart part = as_part(values);
  ASSERT_TRUE(group.begin(0, 0, {}, DType::kFloat32, {&part, 1}).ok());
  EXPECT_THAT(
      group.end(0, 0).to_string(),
      HasSubstr("device 0 has waited 20 ms for exchange 0; devices that have not arrived: 1"));
}

TEST(ExchangeGroupTest, SaysWhichPartsDoNotFit) {
  ExchangeGroup group({.devices = 2, .exchanges = 1});
  group.reset();
  std::vector<std::string> messages(2);
  on_devices(2, [&](int d) {
    std::vector<float> values(static_cast<size_t>(d) + 3);
    const ExchangePart part = as_part(values);
    Status status = group.begin(d, 0, {}, DType::kFloat32, {&part, 1});
    if (status.ok()) status = group.end(d, 0);
    messages[static_cast<size_t>(d)] = status.to_string();
  });
  EXPECT_THAT(messages, Each(HasSubstr("exchange 0: device 1 contributes [4] elements of f32, "
                                       "device 0 [3] of f32")));
}

// Two processes of two devices each, joined by an exchange between processes.
class MemoryLink final : public TrainerLink {
 public:
  MemoryLink(ExchangeGroup& hub, int trainer) : hub_(hub), trainer_(trainer) {}
  [[nodiscard]] int trainers() const override { return hub_.devices(); }
  [[nodiscard]] int trainer_id() const override { return trainer_; }
  Status all_reduce(DType dtype, std::byte* data, int64_t count, int /*ring*/) override {
    const ExchangePart part{data, count};
    MILLRACE_RETURN_IF_ERROR(hub_.begin(trainer_, 0, {}, dtype, {&part, 1}));
    return hub_.end(trainer_, 0);
  }

 private:
  ExchangeGroup& hub_;
  int trainer_;
};

TEST(ExchangeGroupTest, SumsOverProcesses) {
  ExchangeGroup hub({.devices = 2, .exchanges = 1});
  hub.reset();
  MemoryLink links[2] = {{hub, 0}, {hub, 1}};
  ExchangeGroup first({.devices = 2, .exchanges = 1, .trainers = &links[0]});
  ExchangeGroup second({.devices = 2, .exchanges = 1, .trainers = &links[1]});
  first.reset();
  second.reset();
  on_devices(4, [&](int rank) {
    ExchangeGroup& group = rank < 2 ? first : second;
    EXPECT_EQ(group.ranks(), 4);
    std::vector<float> values(70'000, static_cast<float>(1 << rank));
    const ExchangePart part = as_part(values);
    for (int round = 0; round < 3; ++round) {
      std::fill(values.begin(), values.end(), static_cast<float>(1 << rank));
      ASSERT_TRUE(group.begin(rank % 2, 0, {}, DType::kFloat32, {&part, 1}).ok());
      ASSERT_TRUE(group.end(rank % 2, 0).ok());
      EXPECT_THAT(values, Each(15.0F));
    }
  });
}

// A device whose call fails leaves none waiting for the end of the exchange.
TEST(ExchangeGroupTest, DevicesFinishAnExchangeWhenAllHaveStartedIt) {
  constexpr int kDevices = 3;
  ExchangeGroup group({.devices = kDevices, .exchanges = 1, .timeout_ms = 60'000});
  for (const int failing : {-1, 1, -1}) {
    group.reset();
    std::atomic<int> started{0};
    std::atomic<int> finished{0};
    std::vector<Status> statuses(kDevices);
    on_devices(kDevices, [&](int d) {
      const ExchangePart part{nullptr, 5};
      ASSERT_TRUE(group.begin(d, 0, {.on_devices = true}, DType::kFloat32, {&part, 1}).ok());
      Status& status = statuses[static_cast<size_t>(d)];
      status = group.end_on_device(
          d, 0,
          [&]() -> Status {
            if (d == failing) return {StatusCode::kExecution, "the call fails"};
            ++started;
            return Ok();
          },
          [&] {
            EXPECT_EQ(started.load(), kDevices);
            ++finished;
            return Ok();
          });
      if (!status.ok()) group.fail();
    });
    EXPECT_EQ(finished.load(), failing < 0 ? kDevices : 0);
    for (int d = 0; d < kDevices; ++d)
      EXPECT_EQ(statuses[static_cast<size_t>(d)].code(), failing < 0    ? StatusCode::kOk
                                                         : d == failing ? StatusCode::kExecution
                                                                        : StatusCode::kDistributed);
  }
}

TEST(ExchangeGroupTest, DevicesMustBringTheSameToAnExchangeOfTheirOwn) {
  ExchangeGroup group({.devices = 2, .exchanges = 1});
  const auto never = []() -> Status { return {StatusCode::kInternal, "must not be called"}; };
  on_devices(2, [&](int d) {
    const ExchangePart part{nullptr, 5 + d};
    Status status = group.begin(d, 0, {.on_devices = true}, DType::kFloat32, {&part, 1});
    if (status.ok()) status = group.end_on_device(d, 0, never, never);
    EXPECT_THAT(status.to_string(),
                HasSubstr("exchange 0: device 1 contributes [6] elements of f32, device 0 [5]"));
  });
}

}  // namespace
}  // namespace millrace::executor
