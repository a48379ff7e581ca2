#pragma once

#include <memory>

#include <llvm/ADT/StringMap.h>

#include "framework/base/registered_twice.h"
#include "kernels/cpu/unary.h"

// Stages of the op that fuses a chain of elementwise ops: a block of elements passes through all
// stages while it is in the cache.
namespace millrace::kernels {

/// The formula of an elementwise op, and its loop over floats.
struct Stage {
  detail::UnaryLoop<float> loop = nullptr;  ///< called for one block after the other
  std::shared_ptr<const void> formula;      ///< argument of the loop
  bool is_gradient = false;                 ///< the stage multiplies by a slope
  GradSource from = GradSource::kNothing;   ///< of a gradient
};
/// Makes the stage of one op of the chain from its attributes.
using StageMaker = Stage (*)(const KernelSetup&);

/// Makers of stages by op type.
class StageTable {
 public:
  /// Aborts if the type was added before, which is a bug of the caller.
  void add(llvm::StringRef type, StageMaker maker) {
    if (!makers_.try_emplace(type, maker).second) abort_registered_twice("the stage of op", type);
  }
  /// Null if there is none.
  [[nodiscard]] StageMaker find(llvm::StringRef type) const { return makers_.lookup(type); }

 private:
  llvm::StringMap<StageMaker> makers_;
};

/// Adds the stages of formula F, as add_unary() adds the kernels.
template <typename F>
void add_unary(StageTable& table, llvm::StringRef type, llvm::StringRef grad_type) {
  table.add(type, [](const KernelSetup& op) {
    return Stage{detail::value_loop<F, float>, std::make_shared<F>(detail::make_formula<F>(op))};
  });
  table.add(grad_type, [](const KernelSetup& op) {
    return Stage{detail::grad_loop<F, float>, std::make_shared<F>(detail::make_formula<F>(op)),
                 true, F::kFrom};
  });
}

// Defined in kernels/cpu/activation/: rectifiers.cc, smooth.cc, functions.cc.
void add_rectifiers(StageTable& table);
void add_smooth_activations(StageTable& table);
void add_functions(StageTable& table);

}  // namespace millrace::kernels
