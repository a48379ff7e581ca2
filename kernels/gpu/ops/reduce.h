#pragma once

#include <algorithm>

#include "kernels/gpu/functors/reduce.h"
#include "kernels/gpu/ops/walk.h"

namespace millrace::gpu {

/// The elements of a tensor by result of a reduction.
struct ReducePlan {
  Walk<1> kept;               ///< positions of the results
  Walk<1> gone;               ///< positions within a result
  Walk<1> results;            ///< position of its result by element
  int64_t count = 1;          ///< results
  int64_t each = 1;           ///< elements of each
  bool side_by_side = false;  ///< adjacent results have adjacent elements
};
/// \param axes  dims to reduce; empty: all
/// Errors: rejects dims that are not there; as Box::walk().
StatusOr<ReducePlan> reduction_of(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> axes);

/// Reduces x to y. Few results of many elements are reduced in two launches, so that the whole
/// device takes part.
/// \param factor  of the results
/// Errors: kResource for the memory of the parts.
template <typename Formula>
Status reduce(Memory& memory, const ReducePlan& r, const float* x, float* y, float factor) {
  Device& device = memory.device();
  // sizes of chunks
  constexpr int64_t kChunk = 8192;   // elements that are worth a team
  constexpr int64_t kWanted = 1024;  // teams that fill a device
  int64_t chunks = 1;
  if (r.count > 0 && r.count < kWanted / 2)
    chunks = std::clamp<int64_t>(r.each / kChunk, 1, kWanted / r.count);
  const auto run = [&](const auto& functor, int64_t count) {
    return r.side_by_side ? lanes(device, functor, count) : rows(device, functor, count);
  };
  Reduce<Formula> first{x, y, nullptr, r.kept, r.gone, r.count, r.each, r.each, factor};
  if (chunks == 1) return run(first, r.count);
  MILLRACE_ASSIGN_OR_RETURN(
      const std::shared_ptr<Block> parts,
      memory.allocate(chunks * r.count * static_cast<int64_t>(sizeof(double)), "parts of sums"));
  first.parts = reinterpret_cast<double*>(parts->data());
  first.chunk = (r.each + chunks - 1) / chunks;
  MILLRACE_RETURN_IF_ERROR(run(first, chunks * r.count));
  return rows(device, ReduceParts<Formula>{first.parts, y, r.count, chunks, factor}, r.count);
}

}  // namespace millrace::gpu
