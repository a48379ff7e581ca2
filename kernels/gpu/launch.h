#pragma once

#include <type_traits>

#include "kernels/gpu/device.h"
#include "kernels/gpu/functors/all.h"

namespace millrace::gpu {

/// CUDA passes no larger arguments to a kernel.
inline constexpr size_t kMostFunctorBytes = 4000;

/// Queues functor(i) for each i in [0, count), in any order and in parallel.
template <typename Functor>
Status each(Device& device, const Functor& functor, int64_t count) {
  static_assert(std::is_trivially_copyable_v<Functor>);
  static_assert(sizeof(Functor) <= kMostFunctorBytes);
  return count <= 0 ? Ok() : device.launch_each(index_of<Functor>(EachFunctors{}), &functor, count);
}

/// Queues functor(team, row) for each row in [0, count), in any order; a team of threads computes
/// each row.
template <typename Functor>
Status rows(Device& device, const Functor& functor, int64_t count) {
  static_assert(std::is_trivially_copyable_v<Functor>);
  return count <= 0 ? Ok() : device.launch_rows(index_of<Functor>(RowFunctors{}), &functor, count);
}

/// The same for rows whose elements are apart, while those of adjacent rows are side by side: the
/// threads that read at the same time work on eight adjacent rows.
template <typename Functor>
Status lanes(Device& device, const Functor& functor, int64_t count) {
  static_assert(std::is_trivially_copyable_v<Functor>);
  return count <= 0 ? Ok()
                    : device.launch_rows(RowFunctors::kSize + index_of<Functor>(RowFunctors{}),
                                         &functor, count);
}

}  // namespace millrace::gpu
