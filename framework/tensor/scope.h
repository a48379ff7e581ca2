#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>

#include "framework/tensor/value.h"

namespace millrace {

/// Values by var name, with an optional enclosing scope.
///
/// The address of a value is stable until the value is erased. Source: spec/executor.md section 3.
/// Thread-safety: one writer; executors in different threads use separate scopes.
class Scope {
 public:
  /// \param parent  enclosing scope, which must outlive this one; null for a root
  /// \param beside  scope whose own values are searched after those of this scope and before the
  ///                enclosing scopes: the scope of the forward iteration that a gradient block
  ///                belongs to; or null
  explicit Scope(Scope* parent = nullptr, std::shared_ptr<Scope> beside = nullptr)
      : parent_(parent), beside_(std::move(beside)) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() = default;

  /// The scopes passed to the constructor; null if there are none.
  [[nodiscard]] Scope* parent() const { return parent_; }
  [[nodiscard]] const std::shared_ptr<Scope>& beside() const { return beside_; }
  /// The outermost scope.
  [[nodiscard]] Scope& root();

  /// The value in this scope itself; created empty if there is none.
  Value& local(llvm::StringRef name);
  /// Searches this scope, then `beside`, then the enclosing scopes; null if not found.
  [[nodiscard]] Value* find(llvm::StringRef name) const;
  /// The value in this scope itself; null if not found.
  [[nodiscard]] Value* find_local(llvm::StringRef name) const;
  /// Removes a value of this scope; does nothing if there is none.
  void erase(llvm::StringRef name) { values_.erase(name); }
  /// Names in this scope itself, in alphabetical order.
  [[nodiscard]] std::vector<std::string> names() const;

  /// Data that `owner` attaches to this scope, such as nested scopes; destroyed with the scope.
  /// Null until the owner sets it.
  std::shared_ptr<void>& attachment(const void* owner) { return attachments_[owner]; }

 private:
  Scope* parent_;
  std::shared_ptr<Scope> beside_;
  llvm::StringMap<std::unique_ptr<Value>> values_;
  llvm::DenseMap<const void*, std::shared_ptr<void>> attachments_;
};

}  // namespace millrace
