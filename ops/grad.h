#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/op.h"
#include "framework/op_attrs.h"

namespace millrace::ops {

class OpRegistry;

/// One op to be appended to a block: type, slots with var names, attributes.
struct GradOp {
  std::string type;
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs;
  std::vector<std::pair<std::string, std::vector<std::string>>> outputs;
  std::vector<std::pair<std::string, AttrValue>> attrs;

  explicit GradOp(llvm::StringRef op_type) : type(op_type.str()) {}
  GradOp& input(llvm::StringRef slot, std::vector<std::string> names) {
    inputs.emplace_back(slot.str(), std::move(names));
    return *this;
  }
  GradOp& output(llvm::StringRef slot, std::vector<std::string> names) {
    outputs.emplace_back(slot.str(), std::move(names));
    return *this;
  }
  GradOp& attr(llvm::StringRef name, AttrValue value) {
    attrs.emplace_back(name.str(), std::move(value));
    return *this;
  }
};

/// Input of a gradient rule: the forward op, and the names of the gradients.
class GradContext {
 public:
  /// \param wanted  returns whether the gradient of a forward input var is needed
  GradContext(const Op& forward, std::function<bool(llvm::StringRef)> wanted)
      : forward_(forward), wanted_(std::move(wanted)) {}

  [[nodiscard]] const Op& forward() const { return forward_; }
  /// Var names of a forward slot.
  [[nodiscard]] std::vector<std::string> input(llvm::StringRef slot) const;
  [[nodiscard]] std::vector<std::string> output(llvm::StringRef slot) const;
  /// Names of the incoming gradients of a forward output slot.
  [[nodiscard]] std::vector<std::string> output_grad(llvm::StringRef slot) const;
  /// Names of the gradients to compute for a forward input slot. Gradients that are not wanted are
  /// omitted; with keep_places they become the placeholder @EMPTY@, unless none is wanted.
  [[nodiscard]] std::vector<std::string> input_grad(llvm::StringRef slot,
                                                    bool keep_places = false) const;

 private:
  const Op& forward_;
  std::function<bool(llvm::StringRef)> wanted_;
};

/// Applies the gradient rule of the op's schema.
///
/// \returns the gradient ops in order; empty if the op has a rule but no gradient is wanted
/// Errors: kUnimplemented if the op type has no gradient rule, kInvalidProgram if it is unknown.
/// Source: spec/backward.md section 1.
StatusOr<std::vector<GradOp>> make_grad_ops(const OpRegistry& registry, const GradContext& context);

}  // namespace millrace::ops
