#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/Allocator.h>
#include <llvm/Support/StringSaver.h>

#include "ops/op_def.h"

namespace millrace::ops {

/// All known op types, by name. Filled with add(), then immutable.
///
/// Adding a def with a GradSpec also adds a def of its gradient op, see derive_grad_def(). A def
/// that is added explicitly under the same name replaces the derived one.
/// Thread-safety: concurrent reads are safe after the last add().
class OpRegistry {
 public:
  OpRegistry();
  OpRegistry(const OpRegistry&) = delete;
  OpRegistry& operator=(const OpRegistry&) = delete;

  /// Adds a def. Aborts if the name was already added explicitly, which is a bug of the caller.
  void add(OpDef def);

  [[nodiscard]] const OpDef* find(llvm::StringRef type) const;
  /// All types in alphabetical order.
  [[nodiscard]] std::vector<llvm::StringRef> types() const;
  /// Attributes that every op may carry (op_role, op_callstack, ...).
  [[nodiscard]] const AttrDef* find_common_attr(llvm::StringRef name) const;
  [[nodiscard]] llvm::ArrayRef<AttrDef> common_attrs() const { return common_; }
  /// The known type most similar to a misspelt one; empty if none is similar.
  [[nodiscard]] std::string suggest(llvm::StringRef type) const;

 private:
  void add_derived_grad(const OpDef& forward);

  llvm::BumpPtrAllocator storage_;
  llvm::StringSaver saver_{storage_};
  std::vector<std::unique_ptr<OpDef>> defs_;
  llvm::StringMap<const OpDef*> by_type_;
  llvm::StringMap<bool> derived_;
  std::vector<AttrDef> common_;
};

/// A new registry with every op of this build.
std::unique_ptr<OpRegistry> standard_registry();

}  // namespace millrace::ops
