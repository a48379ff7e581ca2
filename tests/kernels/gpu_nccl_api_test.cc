// kernels/gpu/cuda/nccl_api.h must match the header of NCCL. Built if that header is installed.

#include <cstddef>

#include <gtest/gtest.h>
#include <nccl.h>

#include "kernels/gpu/cuda/nccl_api.h"
#include "tests/kernels/gpu_api_alike.h"

namespace millrace::gpu::nccl {
namespace {

TEST(NcclApi, FunctionsTakeWhatTheyAreGiven) {
  static_assert(kAlike<decltype(Api::GetVersion), decltype(&ncclGetVersion)>);
  static_assert(kAlike<decltype(Api::GetErrorString), decltype(&ncclGetErrorString)>);
  static_assert(kAlike<decltype(Api::GetLastError), decltype(&ncclGetLastError)>);
  static_assert(kAlike<decltype(Api::GetUniqueId), decltype(&ncclGetUniqueId)>);
  static_assert(kAlike<decltype(Api::CommGetAsyncError), decltype(&ncclCommGetAsyncError)>);
  static_assert(kAlike<decltype(Api::CommFinalize), decltype(&ncclCommFinalize)>);
  static_assert(kAlike<decltype(Api::CommDestroy), decltype(&ncclCommDestroy)>);
  static_assert(kAlike<decltype(Api::CommAbort), decltype(&ncclCommAbort)>);
  static_assert(kAlike<decltype(Api::AllReduce), decltype(&ncclAllReduce)>);
  static_assert(kAlike<decltype(Api::Reduce), decltype(&ncclReduce)>);
  static_assert(kAlike<decltype(Api::Broadcast), decltype(&ncclBroadcast)>);
  static_assert(kAlike<decltype(Api::AllGather), decltype(&ncclAllGather)>);
  static_assert(kAlike<decltype(Api::ReduceScatter), decltype(&ncclReduceScatter)>);
  // the id is passed by value
  static_assert(kAlike<decltype(Api::CommInitRankConfig),
                       ncclResult_t (*)(ncclComm_t*, int, UniqueId, int, ncclConfig_t*)>);
  static_assert(
      std::is_same_v<decltype(&ncclCommInitRankConfig),
                     ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*)>);
}

TEST(NcclApi, RecordsAndNumbers) {
  EXPECT_EQ(sizeof(UniqueId), sizeof(ncclUniqueId));
  EXPECT_EQ(alignof(UniqueId), alignof(ncclUniqueId));
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(Config().magic, theirs.magic);
  EXPECT_LE(sizeof(Config), theirs.size);
  EXPECT_EQ(Config().version, static_cast<unsigned>(NCCL_VERSION(2, 14, 0)));
  EXPECT_EQ(offsetof(Config, size), offsetof(ncclConfig_t, size));
  EXPECT_EQ(offsetof(Config, magic), offsetof(ncclConfig_t, magic));
  EXPECT_EQ(offsetof(Config, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(Config, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(kSuccess, ncclSuccess);
  EXPECT_EQ(kUnhandledCuda, ncclUnhandledCudaError);
  EXPECT_EQ(kInvalidArgument, ncclInvalidArgument);
  EXPECT_EQ(kInvalidUsage, ncclInvalidUsage);
  EXPECT_EQ(kInProgress, ncclInProgress);
  EXPECT_EQ(kSum, ncclSum);
  EXPECT_EQ(kProd, ncclProd);
  EXPECT_EQ(kMax, ncclMax);
  EXPECT_EQ(kMin, ncclMin);
  EXPECT_EQ(kInt8, ncclInt8);
  EXPECT_EQ(kUint8, ncclUint8);
  EXPECT_EQ(kInt32, ncclInt32);
  EXPECT_EQ(kInt64, ncclInt64);
  EXPECT_EQ(kFloat16, ncclFloat16);
  EXPECT_EQ(kFloat32, ncclFloat32);
  EXPECT_EQ(kFloat64, ncclFloat64);
  EXPECT_EQ(kBfloat16, ncclBfloat16);
}

}  // namespace
}  // namespace millrace::gpu::nccl
