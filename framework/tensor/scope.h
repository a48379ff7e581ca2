#pragma once

#include <memory>
#include <string>
#include <vector>

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
  explicit Scope(Scope* parent = nullptr) : parent_(parent) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() = default;

  [[nodiscard]] Scope* parent() const { return parent_; }
  /// The outermost scope.
  [[nodiscard]] Scope& root();

  /// The value of this very scope, made empty if there is none.
  Value& local(llvm::StringRef name);
  /// Here or in an enclosing scope; null if there is none.
  [[nodiscard]] Value* find(llvm::StringRef name) const;
  [[nodiscard]] Value* find_local(llvm::StringRef name) const;
  void erase(llvm::StringRef name) { values_.erase(name); }
  /// Names of this very scope in alphabetical order.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  Scope* parent_;
  llvm::StringMap<std::unique_ptr<Value>> values_;
};

}  // namespace millrace
