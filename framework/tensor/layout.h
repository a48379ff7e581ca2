#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "framework/types.h"

namespace millrace {

/// An order of elements in memory that only one library reads and writes, such as the blocked
/// channels of oneDNN. Made for certain dims and one dtype. Immutable, so tensors share it.
/// Thread-safety: concurrent readers.
class Layout {
 public:
  Layout() = default;
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  virtual ~Layout() = default;

  /// Bytes of a tensor in this order, padding included.
  [[nodiscard]] virtual int64_t bytes() const = 0;
  /// True if the same bytes mean the same elements in both orders.
  [[nodiscard]] virtual bool same_as(const Layout& other) const = 0;
  /// Writes the elements in row-major order. from and to do not overlap. Errors: kResource,
  /// kExecution.
  virtual Status to_plain(const std::byte* from, std::byte* to) const = 0;
  /// For messages and plans.
  [[nodiscard]] virtual std::string name() const = 0;
  /// True if only the kernel that gave a tensor this layout takes it so. The executor makes the
  /// tensor row-major for all other kernels, and that kernel can tell that somebody had it.
  [[nodiscard]] virtual bool is_private() const { return false; }
};

/// Brings the elements into row-major order, in memory of the tensor's own if they are not yet;
/// views that share the old memory keep the old order. Errors: kResource, kExecution.
Status make_plain(Tensor& tensor);
/// Gives a tensor the dtype, dims, LoD and elements of another one, in row-major order, in memory
/// of its own. Errors: kResource, kExecution.
Status copy_plain(const Tensor& from, Tensor& to);

}  // namespace millrace
