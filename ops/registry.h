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

/// All op types a run knows, by name. Filled by function calls, then immutable.
///
/// Adding a def with a GradSpec also adds the def of its gradient op, derived from the forward one:
/// every forward slot and output gradient becomes an optional input (programs of different ages
/// pass different ones), every input gradient an optional output, attributes stay the same. A def
/// added explicitly under that name wins. Thread-safety: concurrent readers after filling.
class OpRegistry {
 public:
  OpRegistry();
  OpRegistry(const OpRegistry&) = delete;
  OpRegistry& operator=(const OpRegistry&) = delete;

  /// Adds a def. A name may be added once; a second add is a bug and aborts.
  void add(OpDef def);

  [[nodiscard]] const OpDef* find(llvm::StringRef type) const;
  /// All types in alphabetical order.
  [[nodiscard]] std::vector<llvm::StringRef> types() const;
  /// Attributes that every op may carry (op_role, op_callstack, ...).
  [[nodiscard]] const AttrDef* find_common_attr(llvm::StringRef name) const;
  [[nodiscard]] llvm::ArrayRef<AttrDef> common_attrs() const { return common_; }
  /// The known type nearest to a misspelt one; empty if none is near.
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

/// The registry with every op of this build.
std::unique_ptr<OpRegistry> standard_registry();

}  // namespace millrace::ops
