#pragma once

#include <memory>
#include <string>

#include "kernels/gpu/communicator.h"
#include "kernels/gpu/cuda/nccl_api.h"

namespace millrace::gpu {

/// Collectives by NCCL, which is loaded by open(): they are queued in the stream of a GPU. Nothing
/// in it blocks, so every wait has a deadline, after which the communicator is aborted. Errors have
/// NCCL's own words.
///
/// Source: NCCL user guide, "Fault tolerance" (non-blocking communicators, ncclCommGetAsyncError,
/// ncclCommAbort).
class Nccl final : public Collectives {
 public:
  /// \param ordinal  of the GPU that ranks use
  /// \param stream   of it
  /// Errors: kUnimplemented where the library, or a function of it, cannot be loaded.
  static StatusOr<std::unique_ptr<Nccl>> open(int ordinal, cudaStream_t stream);

  [[nodiscard]] std::string library() const override;
  StatusOr<CommunicatorId> make_id() override;
  StatusOr<std::unique_ptr<Communicator>> join(const CommunicatorId& id,
                                               const CommunicatorPlace& place) override;

 private:
  Nccl(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {}
  Status load();

  int ordinal_;
  cudaStream_t stream_;
  nccl::Api api_{};
};

/// What the module "gpu" exports (kernels/gpu/module.h).
StatusOr<std::string> find_nccl();

}  // namespace millrace::gpu
