#pragma once

#include <llvm/ADT/StringRef.h>

namespace millrace::kernels {

/// What an input slot of a kernel takes besides dense tensors.
struct AcceptedKinds {
  bool rows = false;    ///< selected rows
  bool arrays = false;  ///< tensor arrays
  bool others = false;  ///< anything: the kernel looks itself
};

/// What the CPU kernel of an op takes in an input slot; the executor refuses all else.
AcceptedKinds accepted_kinds(llvm::StringRef op_type, llvm::StringRef slot);

}  // namespace millrace::kernels
