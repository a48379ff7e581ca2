#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/gate_activation.h"
#include "kernels/cpu/sequence/pool_rows.h"
#include "kernels/cpu/sequence/row_windows.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Fused ops: several pooled sequences concatenated; windows, or expanded rows, times a matrix.
namespace millrace::kernels {
namespace {

// Adds the bias to the rows of a matrix and applies the activation function.
template <typename T>
void finish_rows(const T* bias, rnn::Activation function, int64_t rows, int64_t columns, T* out) {
  for (int64_t r = 0; r < rows && bias != nullptr; ++r) {
    T* const row = out + r * columns;
    for (int64_t c = 0; c < columns; ++c) row[c] += bias[c];
  }
  rnn::activate(function, out, rows * columns);
}

struct PooledInputs {
  std::vector<const Tensor*> parts;
  int64_t sequences = 0;
  int64_t width = 0;  // over all parts
};

StatusOr<PooledInputs> pooled_inputs(const KernelContext& ctx, ArgRange args) {
  PooledInputs in;
  for (int32_t k = 0; k < args.count; ++k) {
    const Tensor& x = ctx.in(args, k);
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, outer_sequences_of(x, "X"));
    const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
    if (k == 0) in.sequences = sequences;
    if (x.rank() != 2 || sequences != in.sequences || x.dtype() != ctx.in(args, 0).dtype())
      return ctx.error("X {} must be a matrix with {} sequences as X 0 {}, found {} with {}", k,
                       in.sequences, describe(ctx.in(args, 0)), describe(x), sequences);
    in.parts.push_back(&x);
    in.width += x.dim(1);
  }
  return in;
}

// Replaces the first two elements, shows and clicks, by the logarithm of the shows and that of the
// click rate.
template <typename T>
void take_logarithms(T* row) {
  row[0] = std::log(row[0] + 1);
  row[1] = std::log(row[1] + 1) - row[0];
}

StatusOr<Kernel> make_pooled_concat(const KernelSetup& op, bool counted) {
  // columns of each X, shows and clicks, that are left out
  const int64_t dropped = counted && !op.attr<bool>("use_cvm") ? 2 : 0;
  const ArgRange x = op.inputs("X");
  const ArgIndex out = op.output("Out");
  const SequencePool pool = pool_of(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const PooledInputs in, pooled_inputs(ctx, x));
    Tensor& to = ctx.out(out);
    return dispatch<FloatTypes>(in.parts[0]->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      int64_t column = 0;
      const int64_t columns = in.width - dropped * static_cast<int64_t>(in.parts.size());
      std::vector<T> pooled;
      for (const Tensor* const part : in.parts) {
        const llvm::ArrayRef<int64_t> offsets = part->lod().level(0);
        const int64_t width = part->dim(1);
        if (counted && width < 2)
          return ctx.error("X must have shows and clicks as columns 0 and 1, found {}",
                           describe(*part));
        pooled.resize(static_cast<size_t>(width));
        for (int64_t i = 0; i < in.sequences; ++i) {
          const auto at = static_cast<size_t>(i);
          pool_one(pool, part->data<T>(), offsets[at], offsets[at + 1], width, T(0), pooled.data(),
                   static_cast<int32_t*>(nullptr));
          if (counted && dropped == 0) take_logarithms(pooled.data());
          std::copy(pooled.begin() + dropped, pooled.end(), to.data<T>() + i * columns + column);
        }
        column += width - dropped;
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> fusion_seqpool_concat(const KernelSetup& op) {
  return make_pooled_concat(op, /*counted=*/false);
}
StatusOr<Kernel> fusion_seqpool_cvm_concat(const KernelSetup& op) {
  return make_pooled_concat(op, /*counted=*/true);
}

struct RowsTimesMatrix {
  Workspace work;
  Gemm gemm;
};

StatusOr<Kernel> fusion_seqconv_eltadd_relu(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex filter = op.input("Filter");
  const ArgIndex bias = op.input("Bias");
  const ArgIndex out = op.output("Out");
  const RowWindow window{op.attr<int32_t>("contextLength"), op.attr<int32_t>("contextStart"),
                         false};
  auto state = std::make_shared<RowsTimesMatrix>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor& weights = ctx.in(filter);
    const Tensor& summand = ctx.in(bias);
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(from, "X"));
    if (from.rank() != 2 || weights.rank() != 2 || weights.dim(0) != window.length * from.dim(1) ||
        weights.dtype() != from.dtype() || summand.numel() != weights.dim(1) ||
        summand.dtype() != from.dtype())
      return ctx.error("Filter {} and Bias {} do not fit X {} and windows of {} rows",
                       describe(weights), describe(summand), describe(from), window.length);
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const GemmShape shape = windows_product(from, weights);
      MILLRACE_ASSIGN_OR_RETURN(T* const windows, state->work.take<T>(0, shape.rows * shape.inner));
      write_windows(offsets, window, from.data<T>(), static_cast<const T*>(nullptr), from.dim(1),
                    windows);
      T* const to = ctx.out(out).data<T>();
      MILLRACE_RETURN_IF_ERROR(state->gemm(ctx.device(), shape, windows, weights.data<T>(), to));
      finish_rows(summand.data<T>(), rnn::Activation::kRelu, shape.rows, shape.columns, to);
      return Ok();
    });
  });
}

// Each row of the first X, concatenated with the rows of the other X for its sequence.
struct ExpandedInputs {
  std::vector<const Tensor*> parts;
  llvm::ArrayRef<int64_t> offsets;
  int64_t width = 0;
};

StatusOr<ExpandedInputs> expanded_inputs(const KernelContext& ctx, ArgRange args) {
  ExpandedInputs in;
  MILLRACE_ASSIGN_OR_RETURN(in.offsets, sequences_of(ctx.in(args, 0), "X"));
  const auto sequences = static_cast<int64_t>(in.offsets.size()) - 1;
  for (int32_t k = 0; k < args.count; ++k) {
    const Tensor& x = ctx.in(args, k);
    if (x.rank() != 2 || x.dtype() != ctx.in(args, 0).dtype() || (k > 0 && x.dim(0) != sequences))
      return ctx.error(
          "X {} must be a matrix with a row for each of the {} sequences of X 0, "
          "found {}",
          k, sequences, describe(x));
    // Sequences of several rows would have to be repeated as a whole; the rows of the result do not
    // allow that.
    if (k > 0 && !x.lod().empty() && x.lod().sequences(x.lod().size() - 1) != sequences)
      return ctx.error("X {} has {} sequences, expected {} of one row each", k,
                       x.lod().sequences(x.lod().size() - 1), sequences);
    in.parts.push_back(&x);
    in.width += x.dim(1);
  }
  return in;
}

template <typename T>
void write_expanded(const ExpandedInputs& in, T* out) {
  const llvm::ArrayRef<int64_t> offsets = in.offsets;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    for (int64_t r = offsets[i]; r < offsets[i + 1]; ++r) {
      T* to = out + r * in.width;
      for (size_t k = 0; k < in.parts.size(); ++k) {
        const int64_t width = in.parts[k]->dim(1);
        const int64_t source = k == 0 ? r : static_cast<int64_t>(i);
        to = std::copy_n(in.parts[k]->data<T>() + source * width, width, to);
      }
    }
  }
}

StatusOr<Kernel> fusion_seqexpand_concat_fc(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgIndex weight = op.input("FCWeight");
  const ArgIndex bias = op.input("FCBias");
  const ArgIndex out = op.output("Out");
  const rnn::Activation function = rnn::activation_of(op, "fc_activation");
  auto state = std::make_shared<RowsTimesMatrix>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const ExpandedInputs in, expanded_inputs(ctx, x));
    const Tensor& weights = ctx.in(weight);
    const Tensor* const summand = ctx.find_in(bias);
    const DType dtype = in.parts[0]->dtype();
    if (weights.rank() != 2 || weights.dim(0) != in.width || weights.dtype() != dtype ||
        (summand != nullptr && (summand->numel() != weights.dim(1) || summand->dtype() != dtype)))
      return ctx.error(
          "FCWeight must have {} rows, the widths of X, and FCBias its columns, found "
          "{}",
          in.width, describe(weights));
    return dispatch<FloatTypes>(dtype, [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const GemmShape shape{
          .rows = in.parts[0]->dim(0), .columns = weights.dim(1), .inner = in.width};
      MILLRACE_ASSIGN_OR_RETURN(T* const joined, state->work.take<T>(0, shape.rows * shape.inner));
      write_expanded(in, joined);
      T* const to = ctx.out(out).data<T>();
      MILLRACE_RETURN_IF_ERROR(state->gemm(ctx.device(), shape, joined, weights.data<T>(), to));
      finish_rows(summand == nullptr ? nullptr : summand->data<T>(), function, shape.rows,
                  shape.columns, to);
      return Ok();
    });
  });
}

}  // namespace

void add_sequence_fused(KernelRegistry& registry) {
  registry.add("fusion_seqpool_concat", fusion_seqpool_concat);
  registry.add("fusion_seqpool_cvm_concat", fusion_seqpool_cvm_concat);
  registry.add("fusion_seqconv_eltadd_relu", fusion_seqconv_eltadd_relu);
  registry.add("fusion_seqexpand_concat_fc", fusion_seqexpand_concat_fc);
}

}  // namespace millrace::kernels
