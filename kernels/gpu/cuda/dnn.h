#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gpu/cuda/dnn_api.h"
#include "kernels/gpu/cuda/dnn_engines.h"
#include "kernels/gpu/cuda/library.h"
#include "kernels/gpu/cuda/scratch.h"
#include "kernels/gpu/functors/products.h"

namespace millrace::gpu {

/// Convolutions by cuDNN, which open() loads. Plans are cached by shape.
/// Thread-safety: as the Device that owns it.
class Dnn {
 public:
  /// Errors: kUnimplemented if the library cannot be loaded.
  static StatusOr<std::unique_ptr<Dnn>> open(cudaStream_t stream, bool tf32);
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;
  ~Dnn();

  /// "cuDNN 9.19.0".
  [[nodiscard]] std::string version() const;
  /// Queues the computation. Errors: kUnimplemented if the library has no algorithm for it;
  /// kExecution.
  Status convolve(const Convolution& convolution, Scratch& scratch);

 private:
  /// Everything about a convolution except its pointers.
  struct Plan {
    dnn::TensorDesc input = nullptr;
    dnn::FilterDesc filter = nullptr;
    dnn::TensorDesc output = nullptr;
    dnn::ConvDesc conv = nullptr;
    int algo = 0;
    EnginePlan engine;  ///< if it has a plan: that, in place of the algorithm
    size_t scratch_bytes = 0;
  };
  /// The fastest so far, while a plan is chosen.
  struct Choice {
    Plan plan;
    std::optional<float> milliseconds;
  };
  Dnn(cudaStream_t stream, bool tf32) : stream_(stream), tf32_(tf32) {}
  Status load(const SharedLibrary& library);
  Status check(int status, const char* what) const;
  /// Creates the descriptors of a plan.
  Status describe(const Convolution& c, Plan& plan) const;
  /// How factors may be rounded and multiplied.
  [[nodiscard]] int math_for(const Convolution& c) const {
    if (c.element != Element::kFloat32) return dnn::kTensorOpMath;
    return tf32_ ? dnn::kDefaultMath : dnn::kFmaMath;
  }
  /// The algorithms that the library recommends and whose results do not depend on timing.
  StatusOr<std::vector<dnn::AlgoPerf>> candidates(const Convolution& c, const Plan& plan) const;
  /// Runs them and the engines, and takes the fastest. Writes the result of the convolution.
  Status choose(const Convolution& c, Plan& plan, Scratch& scratch) const;
  Status try_algorithms(const Convolution& c, Plan plan, Scratch& scratch, Choice& best) const;
  Status try_engines(const Convolution& c, Plan plan, Scratch& scratch, Choice& best) const;
  /// Times a plan, and takes it if it is clearly faster than the best.
  Status try_plan(const Convolution& c, const Plan& plan, Scratch& scratch, Choice& best) const;
  Status run(const Convolution& c, const Plan& plan, void* memory) const;
  /// Destroys the descriptors of a plan.
  void drop(const Plan& plan) const;

  cudaStream_t stream_;
  bool tf32_;
  dnn::Api api_{};
  dnn::Handle handle_ = nullptr;
  std::optional<DnnEngines> engines_;                             ///< set by open()
  std::map<std::pair<Convolution::Shape, int64_t>, Plan> plans_;  ///< by shape and alignment
};

}  // namespace millrace::gpu
