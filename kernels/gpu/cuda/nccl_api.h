#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

/// The part of NCCL 2 that millrace calls, declared here so that a build does not need its header:
/// names, numbers and argument lists as in the library's reference. tests/kernels compares them
/// with the header if there is one.
namespace millrace::gpu::nccl {

using Comm = struct CommTag*;

/// ncclResult_t, as far as millrace distinguishes errors.
inline constexpr int kSuccess = 0;          ///< ncclSuccess
inline constexpr int kUnhandledCuda = 1;    ///< ncclUnhandledCudaError
inline constexpr int kInvalidArgument = 4;  ///< ncclInvalidArgument
inline constexpr int kInvalidUsage = 5;     ///< ncclInvalidUsage
inline constexpr int kInProgress = 7;       ///< ncclInProgress

/// ncclRedOp_t.
inline constexpr int kSum = 0;   ///< ncclSum
inline constexpr int kProd = 1;  ///< ncclProd
inline constexpr int kMax = 2;   ///< ncclMax
inline constexpr int kMin = 3;   ///< ncclMin

/// ncclDataType_t.
inline constexpr int kInt8 = 0;      ///< ncclInt8
inline constexpr int kUint8 = 1;     ///< ncclUint8
inline constexpr int kInt32 = 2;     ///< ncclInt32
inline constexpr int kInt64 = 4;     ///< ncclInt64
inline constexpr int kFloat16 = 6;   ///< ncclFloat16
inline constexpr int kFloat32 = 7;   ///< ncclFloat32
inline constexpr int kFloat64 = 8;   ///< ncclFloat64
inline constexpr int kBfloat16 = 9;  ///< ncclBfloat16

/// ncclUniqueId.
struct UniqueId {
  char internal[128];
};

/// ncclConfig_t as of version 2.14. Later versions accept it as well: they check `version` before
/// they read fields that were added later.
struct Config {
  size_t size = sizeof(Config);  ///< of the version that `version` names
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;  ///< 0: calls return before they are done; CommGetAsyncError reports the end
};

/// Functions by their names without the prefix nccl.
struct Api {
  int (*GetVersion)(int* version);
  const char* (*GetErrorString)(int result);
  const char* (*GetLastError)(Comm);
  int (*GetUniqueId)(UniqueId*);
  int (*CommInitRankConfig)(Comm*, int size, UniqueId, int rank, Config*);
  int (*CommGetAsyncError)(Comm, int* result);
  int (*CommFinalize)(Comm);
  int (*CommDestroy)(Comm);
  int (*CommAbort)(Comm);
  int (*AllReduce)(const void* from, void* to, size_t count, int type, int op, Comm, cudaStream_t);
  int (*Reduce)(const void* from, void* to, size_t count, int type, int op, int root, Comm,
                cudaStream_t);
  int (*Broadcast)(const void* from, void* to, size_t count, int type, int root, Comm,
                   cudaStream_t);
  int (*AllGather)(const void* from, void* to, size_t count, int type, Comm, cudaStream_t);
  int (*ReduceScatter)(const void* from, void* to, size_t count, int type, int op, Comm,
                       cudaStream_t);
};

}  // namespace millrace::gpu::nccl
