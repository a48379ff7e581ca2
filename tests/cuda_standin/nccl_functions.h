#pragma once

#include <type_traits>

#include "kernels/gpu/cuda/nccl_api.h"

/// The functions that the stand-in for NCCL exports, with the types of gpu::nccl::Api.
extern "C" {
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::GetVersion)> ncclGetVersion;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::GetErrorString)> ncclGetErrorString;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::GetLastError)> ncclGetLastError;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::GetUniqueId)> ncclGetUniqueId;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::CommInitRankConfig)>
    ncclCommInitRankConfig;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::CommGetAsyncError)>
    ncclCommGetAsyncError;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::CommFinalize)> ncclCommFinalize;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::CommDestroy)> ncclCommDestroy;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::CommAbort)> ncclCommAbort;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::AllReduce)> ncclAllReduce;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::Reduce)> ncclReduce;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::Broadcast)> ncclBroadcast;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::AllGather)> ncclAllGather;
extern std::remove_pointer_t<decltype(millrace::gpu::nccl::Api::ReduceScatter)> ncclReduceScatter;
}
