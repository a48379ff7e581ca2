#pragma once

#include <vector>

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Kernels by op type. Filled by function calls, then immutable. Thread-safety: concurrent readers
/// after filling.
class KernelRegistry {
 public:
  KernelRegistry() = default;
  KernelRegistry(const KernelRegistry&) = delete;
  KernelRegistry& operator=(const KernelRegistry&) = delete;

  /// Adds the kernel of an op type. Aborts if the type has one already, which is a bug of the
  /// caller.
  void add(llvm::StringRef type, KernelMaker maker);
  /// Null if there is none.
  [[nodiscard]] KernelMaker find(llvm::StringRef type) const { return makers_.lookup(type); }
  /// All types in alphabetical order.
  [[nodiscard]] std::vector<llvm::StringRef> types() const;

 private:
  llvm::StringMap<KernelMaker> makers_;  ///< by op type
};

}  // namespace millrace::kernels
