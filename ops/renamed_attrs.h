#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

namespace millrace::ops {

/// An attribute that got another name in a later release. Nothing reads the old name, so an op that
/// has the old one only would run with a default. Source: the version registry of release 2.6.2.
struct RenamedAttr {
  llvm::StringRef op;
  llvm::StringRef from;
  llvm::StringRef to;
};

/// All of them. The gradient op of an op has the attributes of its forward op.
llvm::ArrayRef<RenamedAttr> renamed_attrs();

/// True if `type` is `op` or its gradient op.
bool is_op_or_gradient(llvm::StringRef type, llvm::StringRef op);

}  // namespace millrace::ops
