// The stand-in of NCCL refuses wrong calls and reports ranks that do not agree. All calls and types
// are in tests/kernels/gpu_collectives_test.cc.

#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda_standin/nccl_functions.h"
#include "tests/cuda_standin/runtime.h"

namespace millrace::standin {
namespace {

using namespace gpu::nccl;
using ::testing::HasSubstr;

// A rank with a stream and memory of its device.
struct Member {
  cudaStream_t stream = nullptr;
  void* data = nullptr;
  Comm comm = nullptr;
};

int join(Member& member, const UniqueId& id, int size, int rank, int device) {
  EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
  EXPECT_EQ(cudaStreamCreateWithFlags(&member.stream, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaMallocAsync(&member.data, 1024, member.stream), cudaSuccess);
  Config config;
  return ncclCommInitRankConfig(&member.comm, size, id, rank, &config);
}
void leave(Member& member) {
  if (member.comm != nullptr) {
    EXPECT_EQ(ncclCommAbort(member.comm), kSuccess);
  }
  EXPECT_EQ(cudaFreeAsync(member.data, member.stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(member.stream), cudaSuccess);
}
int state_of(const Member& member) {
  int state = -1;
  EXPECT_EQ(ncclCommGetAsyncError(member.comm, &state), kSuccess);
  return state;
}

class NcclRanks : public ::testing::Test {
 protected:
  void SetUp() override { EXPECT_EQ(ncclGetUniqueId(&id_), kSuccess); }
  void TearDown() override {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(live().handles + live().streams, 0U);
  }
  UniqueId id_{};
};

TEST_F(NcclRanks, NeedAnIdARankAndAConfigurationThatDoesNotBlock) {
  Comm comm = nullptr;
  Config config;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id_, 2, &config), kInvalidArgument);
  UniqueId foreign{};
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, foreign, 0, &config), kInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("ncclGetUniqueId() has not made"));
  config.blocking = 1;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id_, 0, &config), kInvalidArgument);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id_, 0, nullptr), kInvalidArgument);
  int state = 0;
  EXPECT_EQ(ncclCommGetAsyncError(nullptr, &state), kInvalidArgument);
  EXPECT_EQ(ncclCommFinalize(nullptr), kInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(nullptr), kInvalidArgument);
  EXPECT_EQ(ncclCommAbort(nullptr), kInvalidArgument);
  EXPECT_STREQ(ncclGetErrorString(kInvalidUsage), "invalid usage");
}

TEST_F(NcclRanks, CallsAreCheckedAndMustBeCompletedBeforeOthers) {
  Member own;
  EXPECT_EQ(join(own, id_, 1, 0, 0), kInProgress);
  EXPECT_EQ(state_of(own), kInProgress);
  EXPECT_EQ(state_of(own), kSuccess);
  EXPECT_EQ(ncclCommDestroy(own.comm), kInvalidUsage);  // not finalized
  const auto reduce = [&](void* data, size_t count) {
    return ncclAllReduce(data, data, count, kFloat32, kSum, own.comm, own.stream);
  };
  EXPECT_EQ(reduce(own.data, 256), kInProgress);
  EXPECT_EQ(reduce(own.data, 256), kInvalidUsage);  // still in progress
  EXPECT_EQ(state_of(own), kInvalidUsage);
  EXPECT_EQ(reduce(own.data, 256), kInvalidUsage);
  EXPECT_EQ(ncclCommFinalize(own.comm), kInvalidUsage);
  leave(own);
}

TEST_F(NcclRanks, OperandsMustBeDeviceMemory) {
  Member own;
  EXPECT_EQ(join(own, id_, 1, 0, 0), kInProgress);
  float host = 0;
  EXPECT_EQ(ncclBroadcast(&host, &host, 1, kFloat32, 0, own.comm, own.stream), kInvalidArgument);
  leave(own);
  own = {};
  EXPECT_EQ(ncclGetUniqueId(&id_), kSuccess);
  EXPECT_EQ(join(own, id_, 1, 0, 0), kInProgress);
  EXPECT_EQ(ncclAllGather(own.data, own.data, 257, kFloat32, own.comm, own.stream),
            kInvalidArgument);
  leave(own);
  own = {};
  EXPECT_EQ(ncclGetUniqueId(&id_), kSuccess);
  EXPECT_EQ(join(own, id_, 1, 0, 0), kInProgress);
  EXPECT_EQ(ncclReduce(own.data, own.data, 1, 99, kSum, 0, own.comm, own.stream), kInvalidArgument);
  leave(own);
}

TEST_F(NcclRanks, ARankIsTakenOnce) {
  Member own;
  EXPECT_EQ(join(own, id_, 2, 0, 0), kInProgress);
  Comm again = nullptr;
  Config config;
  EXPECT_EQ(ncclCommInitRankConfig(&again, 2, id_, 0, &config), kInvalidUsage);
  EXPECT_EQ(state_of(own), kInProgress);
  EXPECT_EQ(state_of(own), kInProgress);  // the other rank does not come
  leave(own);
}

TEST_F(NcclRanks, TwoRanksCannotHaveOneGpu) {
  Member first;
  Member second;
  EXPECT_EQ(join(first, id_, 2, 0, 0), kInProgress);
  EXPECT_EQ(join(second, id_, 2, 1, 0), kInProgress);
  EXPECT_EQ(state_of(first), kInvalidUsage);
  EXPECT_EQ(state_of(second), kInvalidUsage);
  EXPECT_THAT(ncclGetLastError(second.comm), HasSubstr("two ranks use one GPU"));
  leave(first);
  leave(second);
}

TEST_F(NcclRanks, RanksThatDoNotAgreeGetAnError) {
  Member members[2];
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(join(members[rank], id_, 2, rank, rank), kInProgress);
  for (int rank = 0; rank < 2; ++rank) {
    const Member& member = members[rank];
    EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
    EXPECT_EQ(state_of(member), kInProgress);
    EXPECT_EQ(state_of(member), kSuccess);
    EXPECT_EQ(ncclAllReduce(member.data, member.data, static_cast<size_t>(1 + rank), kFloat32, kSum,
                            member.comm, member.stream),
              kInProgress);
    EXPECT_EQ(state_of(member), kInProgress);
    EXPECT_EQ(state_of(member), kSuccess);
  }
  for (int round = 0; round < 3; ++round) {
    for (const Member& member : members) (void)cudaStreamQuery(member.stream);
  }
  for (Member& member : members) {
    EXPECT_EQ(state_of(member), kInvalidUsage);
    EXPECT_THAT(ncclGetLastError(member.comm), HasSubstr("ranks make different calls"));
    EXPECT_EQ(cudaStreamQuery(member.stream), cudaErrorNotReady);  // until it is aborted
    leave(member);
  }
}

}  // namespace
}  // namespace millrace::standin
