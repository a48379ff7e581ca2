#pragma once

#include <llvm/ADT/StringRef.h>

namespace millrace::kernels {

/// What an input slot of a kernel accepts in addition to dense tensors.
struct AcceptedKinds {
  bool rows = false;    ///< selected rows
  bool arrays = false;  ///< tensor arrays
  bool others = false;  ///< anything: the kernel checks the kind
};

/// What the CPU kernel of an op accepts in an input slot; the executor rejects everything else.
/// An op or slot that is not in the list accepts dense tensors only. Thread-safety: pure.
AcceptedKinds accepted_kinds(llvm::StringRef op_type, llvm::StringRef slot);

}  // namespace millrace::kernels
