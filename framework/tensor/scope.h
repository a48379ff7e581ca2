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

/// Values by var name, inside an enclosing scope.
///
/// Addresses of values stay until they are erased. Source: spec/executor.md section 3.
/// Thread-safety: one writer; executors of several threads use scopes of their own.
class Scope {
 public:
  /// \param parent  enclosing scope, which must outlive this one; null for a root
  /// \param beside  scope whose own values are looked at after those of this one and before the
  ///                enclosing scopes: the forward step that a gradient block belongs to; or null
  explicit Scope(Scope* parent = nullptr, std::shared_ptr<Scope> beside = nullptr)
      : parent_(parent), beside_(std::move(beside)) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() = default;

  [[nodiscard]] Scope* parent() const { return parent_; }
  [[nodiscard]] const std::shared_ptr<Scope>& beside() const { return beside_; }
  /// The outermost scope.
  [[nodiscard]] Scope& root();

  /// The value of this very scope, made empty if there is none.
  Value& local(llvm::StringRef name);
  /// Here, beside, or in an enclosing scope; null if there is none.
  [[nodiscard]] Value* find(llvm::StringRef name) const;
  [[nodiscard]] Value* find_local(llvm::StringRef name) const;
  void erase(llvm::StringRef name) { values_.erase(name); }
  /// Names of this very scope in alphabetical order.
  [[nodiscard]] std::vector<std::string> names() const;

  /// What somebody keeps for this scope, such as scopes inside it; dies with the scope. Null until
  /// the owner sets it.
  std::shared_ptr<void>& attachment(const void* owner) { return attachments_[owner]; }

 private:
  Scope* parent_;
  std::shared_ptr<Scope> beside_;
  llvm::StringMap<std::unique_ptr<Value>> values_;
  llvm::DenseMap<const void*, std::shared_ptr<void>> attachments_;
};

}  // namespace millrace
