#pragma once

#include <memory>
#include <string>

#include "kernels/gpu/communicator.h"
#include "kernels/gpu/cuda/nccl_api.h"

namespace millrace::gpu {

/// Collectives by NCCL, which open() loads. They are queued in the stream of a GPU. No call blocks,
/// so every wait has a deadline, after which the communicator is aborted. Errors contain NCCL's
/// messages.
///
/// Source: NCCL user guide, "Fault tolerance" (non-blocking communicators, ncclCommGetAsyncError,
/// ncclCommAbort).
class Nccl final : public Collectives {
 public:
  /// \param ordinal  the GPU that ranks use
  /// \param stream   stream of that GPU
  /// Errors: kUnimplemented if the library, or a function of it, cannot be loaded.
  static StatusOr<std::unique_ptr<Nccl>> open(int ordinal, cudaStream_t stream);

  [[nodiscard]] std::string library() const override;
  StatusOr<CommunicatorId> make_id() override;
  StatusOr<std::unique_ptr<Communicator>> join(const CommunicatorId& id,
                                               const CommunicatorPlace& place) override;

 private:
  Nccl(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {}
  /// Loads the library and finds its functions.
  Status load();

  int ordinal_;
  cudaStream_t stream_;
  nccl::Api api_{};
};

/// The interface that the module "gpu" exports (kernels/gpu/module.h).
StatusOr<std::string> find_nccl();

}  // namespace millrace::gpu
