#pragma once

#include <array>
#include <vector>

#include "kernels/gpu/ops/args.h"

namespace millrace::gpu {

/// The elements that the results along one dim take, in process memory; see TapSide.
struct Taps {
  int64_t size = 1;                ///< elements along the dim
  std::vector<int32_t> starts{0};  ///< one more than there are results
  std::vector<int32_t> index;      ///< positions of elements
  std::vector<double> weight;      ///< of the elements
  [[nodiscard]] int64_t results() const { return static_cast<int64_t>(starts.size()) - 1; }

  /// Adds an element to the result after the last finished one.
  void add(int64_t position, double factor) {
    index.push_back(static_cast<int32_t>(position));
    weight.push_back(factor);
  }
  /// Finishes a result.
  void finish() { starts.push_back(static_cast<int32_t>(index.size())); }
  /// One result that takes one element.
  static Taps one();
};

/// What gradients take: each element the results that take it.
Taps transposed(const Taps& taps);

/// Depth, height and width of an image.
using TapDims = std::array<Taps, 3>;

/// The taps of one op in device memory, kept from run to run.
/// Thread-safety: as Device.
class TapTables {
 public:
  explicit TapTables(const KernelSetup& op) : memory_(memory_of(op)) {}

  /// The taps that `make` returns (a StatusOr<TapDims>). It is called only where the key differs
  /// from that of the call before. Errors: those of make; kResource.
  template <typename Make>
  StatusOr<std::array<TapSide, 3>> get(const Dims& key, const Make& make) {
    if (block_ != nullptr && key == key_) return sides_;
    MILLRACE_ASSIGN_OR_RETURN(const TapDims dims, make());
    key_.clear();
    MILLRACE_RETURN_IF_ERROR(upload(dims));
    key_ = key;
    return sides_;
  }

 private:
  Status upload(const TapDims& dims);

  Memory& memory_;
  Dims key_;
  std::shared_ptr<Block> block_;  ///< null: nothing was computed so far
  std::array<TapSide, 3> sides_;  ///< point into it
};

}  // namespace millrace::gpu
