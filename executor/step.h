#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <llvm/ADT/SmallVector.h>

#include "executor/control.h"
#include "framework/op.h"
#include "framework/tensor/value.h"
#include "kernels/kernel.h"
#include "kernels/value_kinds.h"
#include "ops/infer_context.h"

namespace millrace::executor {

/// What one op needs to run: its kernel and where its arguments stand in the table of values.
struct Step {
  const Op* op = nullptr;
  const ops::OpDef* def = nullptr;
  kernels::Kernel kernel;
  std::unique_ptr<Control> control;  ///< instead of a kernel

  /// Table index of each argument, -1 for "@EMPTY@".
  llvm::SmallVector<int32_t, 4> inputs;
  llvm::SmallVector<int32_t, 4> outputs;
  /// Inputs (by position) without which the op cannot run.
  llvm::SmallVector<uint16_t, 4> required;

  /// What the kernel takes as an input besides dense tensors.
  struct KindRule {
    uint16_t position;  ///< in inputs
    kernels::AcceptedKinds accepted;
  };
  llvm::SmallVector<KindRule, 0> kinds;

  /// Inputs (by position) of a gradient op that are gradients; one of them must be there.
  llvm::SmallVector<uint16_t, 0> incoming;

  /// Inputs (by position) that the kernel wants in row-major order.
  llvm::SmallVector<uint16_t, 4> plain;
  /// Inputs (by position) that it takes in any layout but a private one.
  llvm::SmallVector<uint16_t, 0> shared_layout;

  /// An input that is also an output, and where its old content goes when the output gets another
  /// type or other dims.
  struct Shared {
    uint16_t input;   ///< position in inputs
    uint16_t output;  ///< position in outputs
    int32_t spare;    ///< table index
  };
  llvm::SmallVector<Shared, 0> shared;
  /// inputs with every shared one replaced by its spare; empty if nothing is shared.
  llvm::SmallVector<int32_t, 0> inputs_apart;

  /// What the inputs were when shape inference ran last, and what it said.
  struct Seen {
    DType dtype;
    VarKind kind;
    Dims dims;
    Lod lod;
  };
  std::vector<Seen> seen;
  struct Result {
    uint16_t output = 0;  ///< position in outputs
    DType dtype = DType::kFloat32;
    bool sized = false;  ///< false: the kernel decides the dims
    Dims dims;
    Lod lod;
  };
  std::vector<Result> results;
  /// Table index of each output that inference gave no dims.
  llvm::SmallVector<int32_t, 0> unknown;
  bool inferred = false;
};

/// Brings the outputs of a step to the dtype, dims and LoD that inference gives for its present
/// inputs; inference runs again only if an input changed.
///
/// \param table    values of the block
/// \param changed  set to true if inference ran; else left alone
/// \returns true if shared inputs were moved to their spares, so that the kernel must read
/// inputs_apart
/// Errors: those of inference; kResource.
StatusOr<bool> prepare_outputs(Step& step, Value* const* table, bool& changed);

/// Brings the inputs that the kernel wants so into row-major order, in the memory that they have.
/// Errors: kResource, kExecution.
Status make_inputs_plain(const Step& step, Value* const* table, kernels::CpuDevice& device);
/// The same for the outputs after the kernel has run.
Status make_outputs_plain(const Step& step, Value* const* table, kernels::CpuDevice& device);

/// kExecution if a required input has no content, naming slot and var.
Status check_inputs(const Step& step, Value* const* table);

}  // namespace millrace::executor
