#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/op.h"
#include "framework/tensor/value.h"
#include "kernels/device.h"
#include "ops/infer_context.h"
#include "ops/op_def.h"
#include "ops/op_view.h"

namespace millrace::ops {
class OpRegistry;
}  // namespace millrace::ops

// What every kernel of an op is written against: KernelSetup while it is made, once per op and
// executor; KernelContext while it runs. docs/extending.md shows a complete kernel.
namespace millrace::kernels {

/// Position of one argument among the inputs (or the outputs) of a compiled op. It is looked up
/// once, when the kernel is made.
struct ArgIndex {
  int32_t index = -1;  ///< -1: absent
  /// True if the op has the argument. An optional slot may be empty, and "@EMPTY@" counts as
  /// absent.
  explicit operator bool() const { return index >= 0; }
};
/// All arguments of a slot, in order.
struct ArgRange {
  int32_t begin = 0;  ///< position of the first argument
  int32_t count = 0;  ///< number of arguments
};

/// What a kernel sees of its op while it is made: schema, attributes, and which slots are filled.
/// It sees no shapes and no data. An attribute has the default of the schema if the op does not set
/// it; the executor adds the location to errors.
class KernelSetup : public ops::OpView {
 public:
  /// \param def      the schema of the op, one of `schemas`
  /// \param schemas  of all ops of the runtime
  /// All arguments must outlive this.
  KernelSetup(const ops::OpDef& def, const Op& op, CpuDevice& device,
              const ops::OpRegistry& schemas);

  /// The device that the kernel will run on.
  [[nodiscard]] CpuDevice& device() const { return device_; }
  /// The schemas of all ops, for kernels of ops that are made of other ops.
  [[nodiscard]] const ops::OpRegistry& schemas() const { return schemas_; }

  /// Argument k of a slot; absent if the slot has fewer arguments.
  [[nodiscard]] ArgIndex input(llvm::StringRef slot, size_t k = 0) const;
  [[nodiscard]] ArgIndex output(llvm::StringRef slot, size_t k = 0) const;
  /// All arguments of a slot, including absent ones; count is 0 if the op lacks the slot.
  [[nodiscard]] ArgRange inputs(llvm::StringRef slot) const;
  [[nodiscard]] ArgRange outputs(llvm::StringRef slot) const;

  /// Declares that the kernel accepts this input in any order of elements (Tensor::layout()). The
  /// executor converts every other input to row-major order before the kernel runs.
  void accept_layout(ArgIndex arg) const {
    if (arg) accepted_.push_back(arg.index);
  }
  /// Positions of the inputs passed to accept_layout(), in the order of the calls.
  [[nodiscard]] llvm::ArrayRef<int32_t> accepted_layouts() const { return accepted_; }
  /// True if the input is a persistable var: the kernel may then keep it in another layout between
  /// runs (KernelContext::stored_in()).
  [[nodiscard]] bool is_persistable(ArgIndex arg) const;
  /// True if the input is a persistable var and no op of the program writes it.
  [[nodiscard]] bool is_constant(ArgIndex arg) const;

 private:
  CpuDevice& device_;
  const ops::OpRegistry& schemas_;
  // Makers get a const setup. accept_layout() records a result of the maker; it does not change the
  // op.
  mutable llvm::SmallVector<int32_t, 4> accepted_;
};

/// The arguments of a kernel during one call. Cheap to copy.
///
/// Required inputs have values (the executor has checked), optional ones may be absent. Outputs
/// whose dims shape inference knows already have dtype, dims, LoD and memory. A kernel whose output
/// dims depend on data resizes the output itself. Input and output may be the same value where the
/// program uses the same var for both.
class KernelContext {
 public:
  /// \param table    values of the block, which the indices below refer to
  /// \param inputs   table index of each input argument, -1 for an absent one
  /// \param outputs  the same for the outputs
  KernelContext(Value* const* table, llvm::ArrayRef<int32_t> inputs,
                llvm::ArrayRef<int32_t> outputs, CpuDevice& device)
      : table_(table), inputs_(inputs.data()), outputs_(outputs.data()), device_(&device) {}

  [[nodiscard]] CpuDevice& device() const { return *device_; }

  /// Input as a dense tensor; it must be one (otherwise use in_value()).
  [[nodiscard]] const Tensor& in(ArgIndex arg) const { return in(arg.index); }
  [[nodiscard]] const Tensor& in(ArgRange args, int32_t k) const { return in(args.begin + k); }
  /// Input of any kind: selected rows, tensor arrays. The slot must accept it (value_kinds.h).
  [[nodiscard]] const Value& in_value(ArgIndex arg) const { return *table_[inputs_[arg.index]]; }
  [[nodiscard]] const Value& in_value(ArgRange args, int32_t k) const {
    return *table_[inputs_[args.begin + k]];
  }
  /// Input as a dense tensor; null if it is absent, has no value or is of another kind.
  [[nodiscard]] const Tensor* find_in(ArgIndex arg) const {
    return arg ? in_value(arg).get_if<Tensor>() : nullptr;
  }

  /// The stored value of an input, for a kernel that converts a persistable var to another layout.
  /// The values of its elements must stay the same.
  [[nodiscard]] Tensor& stored_in(ArgIndex arg) const {
    return table_[inputs_[arg.index]]->as<Tensor>();
  }

  /// Output as a dense tensor.
  [[nodiscard]] Tensor& out(ArgIndex arg) const { return out_value(arg).as<Tensor>(); }
  [[nodiscard]] Tensor& out(ArgRange args, int32_t k) const {
    return out_value(args, k).as<Tensor>();
  }
  /// Output of any kind.
  [[nodiscard]] Value& out_value(ArgIndex arg) const { return *table_[outputs_[arg.index]]; }
  [[nodiscard]] Value& out_value(ArgRange args, int32_t k) const {
    return *table_[outputs_[args.begin + k]];
  }
  /// Output as a dense tensor; null if the op has no such output.
  [[nodiscard]] Tensor* find_out(ArgIndex arg) const { return arg ? &out(arg) : nullptr; }
  /// False for a slot element that is "@EMPTY@".
  [[nodiscard]] bool has_out(ArgRange args, int32_t k) const {
    return outputs_[args.begin + k] >= 0;
  }
  [[nodiscard]] bool has_in(ArgRange args, int32_t k) const { return inputs_[args.begin + k] >= 0; }

  /// An error of this call; the executor adds the location.
  template <typename... Args>
  [[nodiscard]] static Status error(fmt::format_string<Args...> format, Args&&... args) {
    return {StatusCode::kExecution, fmt::format(format, std::forward<Args>(args)...)};
  }

 private:
  [[nodiscard]] const Tensor& in(int32_t index) const {
    const Tensor* const tensor = table_[inputs_[index]]->get_if<Tensor>();
    assert(tensor != nullptr);
    return *tensor;
  }

  Value* const* table_;     ///< values of the block, not owned
  const int32_t* inputs_;   ///< positions of the inputs in it
  const int32_t* outputs_;  ///< positions of the outputs; -1: absent
  CpuDevice* device_;
};

/// The arithmetic of one op, ready to run. It may keep state between calls (oneDNN primitives by
/// shape), so one instance serves one thread at a time. State that cannot be copied is captured by
/// shared_ptr.
using Kernel = std::function<Status(const KernelContext&)>;

/// Makes the kernel of one op: reads attributes and resolves arguments. Errors: kInvalidProgram,
/// kUnimplemented.
using KernelMaker = StatusOr<Kernel> (*)(const KernelSetup&);

}  // namespace millrace::kernels
