#include <algorithm>
#include <array>

#include "framework/tensor/join_rows.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/layouts.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/nest.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace sum_kernels {
namespace {

using Summands = llvm::SmallVector<const Tensor*, 4>;

// out = sum of all, in chunks that stay in the L1 cache. The first summand may share memory with
// out.
template <typename T>
void add_pieces(const Summands& from, Tensor& out, int64_t begin, int64_t end) {
  using C = Compute<T>;
  constexpr int64_t kPiece = 1024;
  std::array<C, kPiece> piece;
  C* const sum = piece.data();
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t count = std::min(kPiece, end - at);
    std::copy_n(stored<T>(*from[0]) + at, count, sum);
    for (size_t k = 1; k < from.size(); ++k) {
      const T* const more = stored<T>(*from[k]) + at;
      for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<C>(more[i]);
    }
    std::copy_n(sum, count, stored<T>(out) + at);
  }
}

template <typename T>
void add_two(const T* a, const T* b, T* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<T>(static_cast<Compute<T>>(a[i]) + static_cast<Compute<T>>(b[i]));
}

// Summands without elements are skipped; the others must have the type, size and layout of out.
Status add_dense(const KernelContext& ctx, const Summands& given, Tensor& out) {
  Summands from;
  for (const Tensor* const x : given) {
    if (x->numel() == 0) continue;
    if (x->numel() != out.numel() || x->dtype() != out.dtype())
      return ctx.error("the inputs must match the result {}, found {}", describe(out),
                       describe(*x));
    from.push_back(x);
    // If out is also an input, its content must be read first.
    if (x->raw() == out.raw()) std::swap(from.front(), from.back());
  }
  if (from.empty()) {
    if (out.numel() > 0) std::memset(out.raw(), 0, static_cast<size_t>(out.bytes()));
    return Ok();
  }
  return dispatch<AllNumberTypes>(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ctx.device().parallel_for(stored_count(out), kGrain, [&](int64_t begin, int64_t end) {
      if (from.size() == 2) {
        add_two(stored<T>(*from[0]) + begin, stored<T>(*from[1]) + begin, stored<T>(out) + begin,
                end - begin);
      } else {
        add_pieces<T>(from, out, begin, end);
      }
    });
    return Ok();
  });
}

// Adds selected rows to a dense tensor of their height.
Status add_rows(const SelectedRows& rows, Tensor& out) {
  if (rows.rows.empty()) return Ok();
  const int64_t height = out.rank() == 0 ? 0 : out.dim(0);
  const int64_t width = height == 0 ? 0 : out.numel() / height;
  if (rows.value.dtype() != out.dtype() ||
      rows.value.numel() != width * static_cast<int64_t>(rows.rows.size()))
    return KernelContext::error("selected rows of {} cannot be added to {}", describe(rows.value),
                                describe(out));
  for (const int64_t row : rows.rows) {
    if (row < 0 || row >= height)
      return KernelContext::error("selected rows name row {}, expected one in [0, {})", row,
                                  height);
  }
  return dispatch<AllNumberTypes>(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = rows.value.data<T>();
    for (const int64_t row : rows.rows) {
      T* const to = out.data<T>() + row * width;
      add_two(to, from, to, width);
      from += width;
    }
    return Ok();
  });
}

using Sparse = llvm::SmallVector<const SelectedRows*, 4>;

// Element by element; elements that were never written count as absent.
Status add_arrays(const KernelContext& ctx, ArgRange args, TensorArray& out) {
  size_t size = 0;
  for (int32_t k = 0; k < args.count; ++k) {
    const auto* const array = ctx.in_value(args, k).get_if<TensorArray>();
    if (array == nullptr) return ctx.error("input {} must be a tensor array like the others", k);
    size = std::max(size, array->size());
  }
  // May reallocate the elements of an input that is also the output, so it runs before they are
  // read.
  if (out.size() < size) out.resize(size);
  for (size_t i = 0; i < size; ++i) {
    Summands from;
    for (int32_t k = 0; k < args.count; ++k) {
      const auto& array = *ctx.in_value(args, k).get_if<TensorArray>();
      if (i < array.size() && array[i].initialized()) from.push_back(&array[i]);
    }
    if (from.empty()) continue;
    Tensor& sum = out[i];
    const bool own = std::find(from.begin(), from.end(), &sum) != from.end();
    if (!own) {
      MILLRACE_RETURN_IF_ERROR(sum.resize(from[0]->dtype(), from[0]->dims()));
      sum.set_lod(from[0]->lod());
    }
    MILLRACE_RETURN_IF_ERROR(add_dense(ctx, from, sum));
  }
  return Ok();
}

// Resizes out to the dims of the dense inputs unless it already has the right number of elements.
Status size_dense(const Summands& dense, Tensor& out) {
  const Tensor* like = dense.front();
  for (const Tensor* const x : dense) {
    if (like->numel() == 0 && x->numel() > 0) like = x;
  }
  const bool fits =
      out.initialized() && out.dtype() == like->dtype() && out.numel() == like->numel();
  return fits ? Ok() : out.resize(like->dtype(), like->dims());
}

// Converts all summands and the result to the layout of the first summand that has one; to
// row-major order if their dims differ or some are sparse.
Status follow_layout(const KernelContext& ctx, ArgRange args, const Summands& dense,
                     bool may_follow, Tensor& out) {
  const auto first = std::find_if(dense.begin(), dense.end(),
                                  [](const Tensor* x) { return x->layout() != nullptr; });
  if (first == dense.end()) return Ok();
  const Tensor& like = **first;
  const LayoutPtr layout =
      may_follow && std::all_of(dense.begin(), dense.end(),
                                [&](const Tensor* x) {
                                  return x->dtype() == like.dtype() && x->dims() == like.dims();
                                })
          ? like.layout()
          : nullptr;
  const DType dtype = like.dtype();
  const Dims dims(like.dims().begin(), like.dims().end());
  for (int32_t k = 0; k < args.count; ++k) {
    if (ctx.has_in(args, k))
      MILLRACE_RETURN_IF_ERROR(bring_to(ctx, ArgIndex{args.begin + k}, layout));
  }
  return layout == nullptr ? Ok() : out.resize(dtype, dims, layout);
}

constexpr int32_t kBackwardRole = 1;

StatusOr<Kernel> sum_kernel(const KernelSetup& op) {
  const ArgRange args = op.inputs("X");
  const ArgIndex out_arg = op.output("Out");
  // A var to which a branch that was not taken would have given a value has no gradient either.
  const bool of_gradients = (get_attr_or<int32_t>(op.op(), "op_role", 0) & kBackwardRole) != 0;
  for (int32_t k = 0; k < args.count; ++k) op.accept_layout({args.begin + k});
  return Kernel([=](const KernelContext& ctx) -> Status {
    Summands dense;
    Sparse sparse;
    Value& out_value = ctx.out_value(out_arg);
    for (int32_t k = 0; k < args.count; ++k) {
      if (!ctx.has_in(args, k)) continue;
      const Value& value = ctx.in_value(args, k);
      if (const auto* const x = value.get_if<Tensor>()) dense.push_back(x);
      if (const auto* const x = value.get_if<SelectedRows>()) sparse.push_back(x);
      if (value.holds<TensorArray>()) return add_arrays(ctx, args, out_value.as<TensorArray>());
    }
    if (dense.empty() && sparse.empty()) {
      if (!of_gradients) return ctx.error("none of the inputs holds a tensor");
      out_value.clear();
      return Ok();
    }
    if (dense.empty()) {
      SelectedRows joined;
      MILLRACE_RETURN_IF_ERROR(join_rows(sparse, joined));
      // As in the original, the result has every row once.
      MILLRACE_ASSIGN_OR_RETURN(SelectedRows merged, merged_rows(joined));
      out_value.as<SelectedRows>() = std::move(merged);
      return Ok();
    }
    // The result may replace selected rows that are also an input.
    SelectedRows replaced;
    if (auto* const own = out_value.get_if<SelectedRows>()) {
      std::replace(sparse.begin(), sparse.end(), static_cast<const SelectedRows*>(own),
                   static_cast<const SelectedRows*>(&replaced));
      replaced = std::move(*own);
    }
    Tensor& out = out_value.as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(follow_layout(ctx, args, dense, sparse.empty(), out));
    MILLRACE_RETURN_IF_ERROR(size_dense(dense, out));
    MILLRACE_RETURN_IF_ERROR(add_dense(ctx, dense, out));
    for (const SelectedRows* const rows : sparse) MILLRACE_RETURN_IF_ERROR(add_rows(*rows, out));
    return Ok();
  });
}

}  // namespace
}  // namespace sum_kernels

/// sum of dense tensors, selected rows and tensor arrays.
void add_math_sum(KernelRegistry& registry) {
  registry.add("sum", sum_kernels::sum_kernel);
}

}  // namespace millrace::kernels
