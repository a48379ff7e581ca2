#pragma once

#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/tensor/scope.h"
#include "framework/tensor/value.h"

namespace millrace::executor {

/// A shared variable that an op uses.
struct VarUse {
  std::shared_mutex* lock = nullptr;
  const Value* value = nullptr;
  bool changes = false;  ///< the op may write it, or bring it to another layout
};

/// Locks for the variables of one scope that several prepared programs use at the same time, one
/// lock each. Every op holds the locks of its variables while it runs, so that no update is lost
/// and no op reads a variable that another one is writing. Between two ops of a step a variable may
/// change.
///
/// Thread-safety: immutable.
class VarLocks {
 public:
  /// \param scope  its own values are shared; it may not get others later
  explicit VarLocks(const Scope& scope);
  VarLocks(const VarLocks&) = delete;
  VarLocks& operator=(const VarLocks&) = delete;
  ~VarLocks() = default;

  /// The lock of a value; null: it is not shared.
  [[nodiscard]] std::shared_mutex* find(const Value* value) const;
  /// What a reader of the value locks: nothing if it is not shared.
  [[nodiscard]] llvm::SmallVector<VarUse, 1> read_of(const Value* value) const;
  /// All of them, for a caller that uses any variable while no op runs.
  [[nodiscard]] std::vector<VarUse> all() const;
  /// Two shared variables that have memory in common, so that a lock of one does not protect the
  /// other; their names, empty if there are none.
  [[nodiscard]] static std::string overlap_in(const Scope& scope);

 private:
  llvm::DenseMap<const Value*, std::unique_ptr<std::shared_mutex>> locks_;
};

/// Holds the locks of variables: shared by readers, exclusive where a variable may change.
class HeldVars {
 public:
  /// \param uses  each lock once, in ascending order of their addresses, as all callers lock them;
  ///              must outlive this
  explicit HeldVars(llvm::ArrayRef<VarUse> uses);
  HeldVars(const HeldVars&) = delete;
  HeldVars& operator=(const HeldVars&) = delete;
  ~HeldVars();

 private:
  llvm::ArrayRef<VarUse> uses_;
  llvm::SmallVector<bool, 8> exclusive_;
};

/// True if the values have memory in common.
bool have_common_memory(const Value& one, const Value& other);

}  // namespace millrace::executor
