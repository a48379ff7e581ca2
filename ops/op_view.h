#pragma once

#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/op.h"
#include "framework/types.h"
#include "ops/op_def.h"
#include "ops/read_attr.h"

namespace millrace::ops {

/// An op together with its schema, as inference functions and makers of kernels see it. Both must
/// outlive the view.
class OpView {
 public:
  OpView(const OpDef& def, const Op& op) : def_(def), op_(op) {}

  [[nodiscard]] const Op& op() const { return op_; }
  [[nodiscard]] const OpDef& def() const { return def_; }

  /// Value of an attribute, converted to T; the schema's default if the op does not have it. The
  /// attribute must be in the schema.
  template <typename T>
  [[nodiscard]] T attr(llvm::StringRef name) const {
    return read_attr<T>(def_, op_, name);
  }
  /// Value of an INT attribute that holds a VarType number, such as "dtype". Not range-checked.
  [[nodiscard]] DType dtype_attr(llvm::StringRef name) const {
    return static_cast<DType>(attr<int32_t>(name));
  }

  /// A kInvalidProgram status for this op. The text names slots and attributes; the caller adds the
  /// location.
  template <typename... Args>
  [[nodiscard]] Status error(fmt::format_string<Args...> format, Args&&... args) const {
    return {StatusCode::kInvalidProgram, fmt::format(format, std::forward<Args>(args)...)};
  }

 private:
  const OpDef& def_;
  const Op& op_;
};

}  // namespace millrace::ops
