#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "executor/compiled_ops/control.h"
#include "framework/op.h"
#include "framework/tensor/value.h"
#include "kernels/kernel.h"
#include "kernels/value_kinds.h"
#include "ops/infer_context.h"

namespace millrace::executor {

/// Four lists of the inputs of an op, by position, in one allocation: a large program has many
/// ops, and most lists are short.
class InputLists {
 public:
  using Positions = llvm::ArrayRef<uint16_t>;
  InputLists() = default;
  InputLists(Positions required, Positions incoming, Positions plain, Positions shared_layout) {
    uint32_t* end = ends_.data();
    for (const Positions list : {required, incoming, plain, shared_layout}) {
      positions_.append(list.begin(), list.end());
      *end++ = static_cast<uint32_t>(positions_.size());
    }
  }

  /// Inputs without which the op cannot run.
  [[nodiscard]] Positions required() const { return list(0); }
  /// The incoming gradients of a gradient op, one of which must be present.
  [[nodiscard]] Positions incoming() const { return list(1); }
  /// Inputs that the kernel needs in row-major order.
  [[nodiscard]] Positions plain() const { return list(2); }
  /// Inputs that it accepts in any layout except a private one.
  [[nodiscard]] Positions shared_layout() const { return list(3); }

 private:
  [[nodiscard]] Positions list(size_t which) const {
    const uint32_t begin = which == 0 ? 0 : ends_[which - 1];
    return Positions(positions_).slice(begin, ends_[which] - begin);
  }
  llvm::SmallVector<uint16_t, 4> positions_;
  std::array<uint32_t, 4> ends_{};
};

/// What one op needs to run: its kernel and the indices of its arguments in the table of values.
struct CompiledOp {
  const Op* op = nullptr;
  const ops::OpDef* def = nullptr;
  kernels::Kernel kernel;
  std::unique_ptr<Control> control;  ///< instead of a kernel

  /// Table index of each argument, -1 for "@EMPTY@".
  llvm::SmallVector<int32_t, 2> inputs;
  llvm::SmallVector<int32_t, 2> outputs;
  /// Lists of inputs, by position.
  InputLists lists;

  /// What the kernel accepts as an input other than dense tensors; inputs that are not listed must
  /// be dense.
  struct KindRule {
    uint16_t position;  ///< in inputs
    kernels::AcceptedKinds accepted;
  };
  llvm::SmallVector<KindRule, 0> kinds;

  /// An input that is also an output, and the place for its old content when the output gets
  /// another type or other dims, or when the kernel writes it while it still reads the input.
  struct Shared {
    uint16_t input;     ///< position in inputs
    uint16_t output;    ///< position in outputs
    int32_t spare;      ///< table index
    bool always_apart;  ///< the op does not declare that it works in place with this input
  };
  llvm::SmallVector<Shared, 0> shared;
  /// inputs, with every shared one replaced by its spare; empty if nothing is shared.
  llvm::SmallVector<int32_t, 0> inputs_apart;

  /// Table index of each output to which no earlier op of the block has written: a temporary of the
  /// block that this op is the first to mention.
  llvm::SmallVector<int32_t, 2> begun;

  /// The inputs when shape inference last ran, and its results.
  struct Seen {
    DType dtype;
    VarKind kind;
    Dims dims;
    Lod lod;
  };
  llvm::SmallVector<Seen, 0> seen;
  struct Result {
    uint16_t output = 0;  ///< position in outputs
    DType dtype = DType::kFloat32;
    bool sized = false;  ///< false: the kernel decides the dims
    bool is_also_input = false;
    Dims dims;
    Lod lod;
  };
  llvm::SmallVector<Result, 0> results;
  /// Table index of each output for which inference found no dims.
  llvm::SmallVector<int32_t, 0> unknown;
  /// Those of them in `begun`: the kernel must not see their content from an earlier run.
  llvm::SmallVector<int32_t, 0> forgotten;
  bool inferred = false;
};

/// The facts about a value for inference; without a shape if it has no content.
ops::VarMeta meta_of_value(const Value& value);

/// Sets dtype and dims of an output, in memory of the device that its op runs on.
/// \param index  in the table of values
using SizeOutput = llvm::function_ref<Status(int32_t index, Tensor& tensor, DType dtype,
                                             llvm::ArrayRef<int64_t> dims)>;

/// Drops the content of an output; may keep its memory for the next content.
using ForgetOutput = llvm::function_ref<void(int32_t index, Tensor& tensor)>;

/// Sets the dtype, dims and LoD of the outputs of an op as inferred from its present inputs;
/// inference runs again only if an input changed.
///
/// \param table    values of the block
/// \param changed  set to true if inference ran; else not changed
/// \param size     called instead of Tensor::resize()
/// \param forget   called instead of Tensor::reset()
/// \returns true if shared inputs were moved to their spares, so that the kernel must read
/// inputs_apart
/// Errors: those of inference; kResource.
StatusOr<bool> prepare_outputs(CompiledOp& compiled, Value* const* table, bool& changed,
                               SizeOutput size = nullptr, ForgetOutput forget = nullptr);

/// Fills the dense outputs that share no memory with an input with values that no kernel may leave
/// there (executor/compiled_ops/memory_guard.h). To be called after prepare_outputs().
void fill_new_outputs(const CompiledOp& compiled, Value* const* table);

/// Converts inputs to row-major order, in their own memory, if the kernel needs that.
/// Errors: kResource, kExecution.
Status make_inputs_plain(const CompiledOp& compiled, Value* const* table,
                         kernels::CpuDevice& device);
/// The same for the outputs, after the kernel has run.
Status make_outputs_plain(const CompiledOp& compiled, Value* const* table,
                          kernels::CpuDevice& device);

/// kExecution if a required input has no content, naming slot and var.
Status check_inputs(const CompiledOp& compiled, Value* const* table);

/// kInvalidProgram if two outputs are one var: it would be sized for one of them, and the kernel
/// writes both.
Status check_written_once(const CompiledOp& compiled);

}  // namespace millrace::executor
