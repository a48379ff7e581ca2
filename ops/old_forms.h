#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/attribute.h"

/// What programs of older releases have and nothing reads; upgrade-program rewrites it. Source: the
/// version registry of release 2.6.2.
namespace millrace::ops {

/// An attribute that got another name in a later release. Nothing reads the old name, so an op that
/// has the old one only would run with a default.
struct RenamedAttr {
  llvm::StringRef op;
  llvm::StringRef from;
  llvm::StringRef to;
};

/// All of them. The gradient op of an op has the attributes of its forward op.
llvm::ArrayRef<RenamedAttr> renamed_attrs();

/// An output that was withdrawn.
struct WithdrawnOutput {
  llvm::StringRef op;
  llvm::StringRef slot;
};
llvm::ArrayRef<WithdrawnOutput> withdrawn_outputs();

/// True if an older release gave the op's attribute in this kind, which does not convert to that of
/// the schema (the tolerances of allclose were floats, which cannot say 1e-8 exactly).
bool is_old_kind(llvm::StringRef type, llvm::StringRef attr, AttrKind kind);

/// True if `type` is `op` or its gradient op.
bool is_op_or_gradient(llvm::StringRef type, llvm::StringRef op);

}  // namespace millrace::ops
