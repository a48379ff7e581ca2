#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/attribute.h"
#include "framework/program.h"

/// Forms that occur only in programs of older releases and that no op reads. The pass
/// upgrade-program rewrites them. Source: the version registry of release 2.6.2.
namespace millrace::ops {

/// An attribute that a later release renamed. No kernel reads the old name, so an op that has only
/// the old one would run with the default.
struct RenamedAttr {
  llvm::StringRef op;
  llvm::StringRef from;
  llvm::StringRef to;
};

/// All renamed attributes. They also apply to the gradient op of each listed op.
llvm::ArrayRef<RenamedAttr> renamed_attrs();

/// An output slot that a later release removed.
struct WithdrawnOutput {
  llvm::StringRef op;
  llvm::StringRef slot;
};
llvm::ArrayRef<WithdrawnOutput> withdrawn_outputs();

/// True if an older release wrote the attribute with this kind, which does not convert to the kind
/// in the schema (the tolerances of allclose were floats, which cannot hold 1e-8 exactly).
bool is_old_kind(llvm::StringRef type, llvm::StringRef attr, AttrKind kind);

/// True if `type` is `op` or its gradient op.
bool is_op_or_gradient(llvm::StringRef type, llvm::StringRef op);

}  // namespace millrace::ops
