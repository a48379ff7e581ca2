#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "executor/control.h"
#include "framework/op.h"
#include "framework/tensor/value.h"
#include "kernels/kernel.h"
#include "kernels/value_kinds.h"
#include "ops/infer_context.h"

namespace millrace::executor {

/// Four lists of the inputs of a step, by position, in one piece of memory: a large program has
/// many steps, and most lists are short.
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

  /// Without these the op cannot run.
  [[nodiscard]] Positions required() const { return list(0); }
  /// Of a gradient op: the gradients, one of which must be there.
  [[nodiscard]] Positions incoming() const { return list(1); }
  /// The kernel wants these in row-major order.
  [[nodiscard]] Positions plain() const { return list(2); }
  /// It takes these in any layout but a private one.
  [[nodiscard]] Positions shared_layout() const { return list(3); }

 private:
  [[nodiscard]] Positions list(size_t which) const {
    const uint32_t begin = which == 0 ? 0 : ends_[which - 1];
    return Positions(positions_).slice(begin, ends_[which] - begin);
  }
  llvm::SmallVector<uint16_t, 4> positions_;
  std::array<uint32_t, 4> ends_{};
};

/// What one op needs to run: its kernel and where its arguments stand in the table of values.
struct Step {
  const Op* op = nullptr;
  const ops::OpDef* def = nullptr;
  kernels::Kernel kernel;
  std::unique_ptr<Control> control;  ///< instead of a kernel

  /// Table index of each argument, -1 for "@EMPTY@".
  llvm::SmallVector<int32_t, 2> inputs;
  llvm::SmallVector<int32_t, 2> outputs;
  /// Lists of inputs, by position.
  InputLists lists;

  /// What the kernel takes as an input besides dense tensors; inputs that are not mentioned must be
  /// dense.
  struct KindRule {
    uint16_t position;  ///< in inputs
    kernels::AcceptedKinds accepted;
  };
  llvm::SmallVector<KindRule, 0> kinds;

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

  /// Table index of each output whose content no earlier op of the block has made: a temporary of
  /// the block that this op is the first to mention.
  llvm::SmallVector<int32_t, 2> begun;

  /// What the inputs were when shape inference ran last, and what it said.
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
  /// Table index of each output that inference gave no dims.
  llvm::SmallVector<int32_t, 0> unknown;
  /// Those of them that begin here: what an earlier run has left must not be seen by the kernel.
  llvm::SmallVector<int32_t, 0> forgotten;
  bool inferred = false;
};

/// What inference may know of a value; without shape if it holds none.
ops::VarMeta meta_of_value(const Value& value);

/// Gives an output its dtype and dims, in memory of the device that its step runs on.
/// \param index  in the table of values
using SizeOutput = llvm::function_ref<Status(int32_t index, Tensor& tensor, DType dtype,
                                             llvm::ArrayRef<int64_t> dims)>;

/// Makes an output hold nothing; may keep its memory for what comes.
using ForgetOutput = llvm::function_ref<void(int32_t index, Tensor& tensor)>;

/// Brings the outputs of a step to the dtype, dims and LoD that inference gives for its present
/// inputs; inference runs again only if an input changed.
///
/// \param table    values of the block
/// \param changed  set to true if inference ran; else left alone
/// \param size     instead of Tensor::resize()
/// \param forget   instead of Tensor::reset()
/// \returns true if shared inputs were moved to their spares, so that the kernel must read
/// inputs_apart
/// Errors: those of inference; kResource.
StatusOr<bool> prepare_outputs(Step& step, Value* const* table, bool& changed,
                               SizeOutput size = nullptr, ForgetOutput forget = nullptr);

/// Fills the dense outputs that share no memory with an input with values that no kernel may leave
/// there (executor/memory_guard.h). After prepare_outputs().
void fill_new_outputs(const Step& step, Value* const* table);

/// Brings the inputs that the kernel wants so into row-major order, in the memory that they have.
/// Errors: kResource, kExecution.
Status make_inputs_plain(const Step& step, Value* const* table, kernels::CpuDevice& device);
/// The same for the outputs after the kernel has run.
Status make_outputs_plain(const Step& step, Value* const* table, kernels::CpuDevice& device);

/// kExecution if a required input has no content, naming slot and var.
Status check_inputs(const Step& step, Value* const* table);

}  // namespace millrace::executor
