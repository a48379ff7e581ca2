#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "framework/types.h"

namespace millrace {

/// An order of elements in memory that only one library reads and writes, such as oneDNN's blocked
/// channels. Specific to certain dims and one dtype. Immutable, so tensors share it.
/// Thread-safety: concurrent readers.
class Layout {
 public:
  Layout() = default;
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  virtual ~Layout() = default;

  /// Bytes of a tensor in this order, including padding.
  [[nodiscard]] virtual int64_t bytes() const = 0;
  /// True if the same bytes mean the same elements in both orders.
  [[nodiscard]] virtual bool same_as(const Layout& other) const = 0;
  /// Writes the elements in row-major order. `from` and `to` must not overlap. Errors: kResource,
  /// kExecution.
  virtual Status to_plain(const std::byte* from, std::byte* to) const = 0;
  /// Name for messages and plans.
  [[nodiscard]] virtual std::string name() const = 0;
  /// True if only the kernel that produced a tensor in this layout may read it in this layout. For
  /// all other kernels the executor converts the tensor to row-major order. The producing kernel
  /// can detect that this happened.
  [[nodiscard]] virtual bool is_private() const { return false; }
};

/// Converts the tensor to row-major order. If it is in another layout, it gets new memory; views
/// that share the old memory keep the old order. Errors: kResource, kExecution.
Status make_plain(Tensor& tensor);
/// Copies dtype, dims, LoD and elements of one tensor to another, in row-major order. The copy does
/// not share memory with `from`. Errors: kResource, kExecution.
Status copy_plain(const Tensor& from, Tensor& to);

}  // namespace millrace
