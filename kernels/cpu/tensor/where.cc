#include <algorithm>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

Status check_condition(const KernelContext& ctx, const Tensor& condition, const Tensor& like,
                       const char* slot) {
  if (condition.dtype() == DType::kBool && condition.numel() == like.numel()) return Ok();
  return ctx.error("{} must be bool with the shape of {}, found {}", slot, describe(like),
                   describe(condition));
}

StatusOr<Kernel> where(const KernelSetup& op) {
  const ArgIndex condition_arg = op.input("Condition");
  const ArgIndex x_arg = op.input("X");
  const ArgIndex y_arg = op.input("Y");
  const ArgIndex out_arg = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& condition = ctx.in(condition_arg);
    const Tensor& x = ctx.in(x_arg);
    const Tensor& y = ctx.in(y_arg);
    MILLRACE_RETURN_IF_ERROR(check_condition(ctx, condition, x, "Condition"));
    if (y.dtype() != x.dtype() || y.numel() != x.numel())
      return ctx.error("X {} and Y {} must have the same type and shape", describe(x), describe(y));
    return dispatch<AllTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const bool* const c = condition.data<bool>();
      const T* const a = x.data<T>();
      const T* const b = y.data<T>();
      T* const out = ctx.out(out_arg).data<T>();
      ctx.device().parallel_for(x.numel(), 32768, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = c[i] ? a[i] : b[i];
      });
      return Ok();
    });
  });
}

StatusOr<Kernel> where_grad(const KernelSetup& op) {
  const ArgIndex condition_arg = op.input("Condition");
  const ArgIndex grad_arg = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  const ArgIndex y_grad = op.output("Y@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const condition,
                              needed(ctx, condition_arg, "Condition"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, grad_arg, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(check_condition(ctx, *condition, *grad, "Condition"));
    return dispatch<AllTypes>(grad->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const bool* const c = condition->data<bool>();
      const T* const dy = grad->data<T>();
      for (const ArgIndex arg : {x_grad, y_grad}) {
        Tensor* const to = ctx.find_out(arg);
        if (to == nullptr) continue;
        if (to->dtype() != grad->dtype() || to->numel() != grad->numel())
          return ctx.error("Out@GRAD is {}, but X and Y are {}", describe(*grad), describe(*to));
        const bool kept = arg.index == x_grad.index && x_grad;
        T* const dx = to->data<T>();
        for (int64_t i = 0; i < grad->numel(); ++i) dx[i] = c[i] == kept ? dy[i] : T{};
      }
      return Ok();
    });
  });
}

// Writes the coordinates of the non-zero elements.
template <typename T>
Status write_coordinates(const Tensor& condition, Tensor& out) {
  const T* const c = condition.data<T>();
  const int64_t count = condition.numel();
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += c[i] != T{} ? 1 : 0;
  const auto rank = static_cast<int64_t>(condition.rank());
  MILLRACE_RETURN_IF_ERROR(size_output(out, DType::kInt64, {found, rank}));
  int64_t* to = out.data<int64_t>();
  Dims at(condition.rank(), 0);
  for (int64_t i = 0; i < count; ++i) {
    if (c[i] != T{}) to = std::copy(at.begin(), at.end(), to);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < condition.dims()[d]) break;
      at[d] = 0;
    }
  }
  return Ok();
}

StatusOr<Kernel> where_index(const KernelSetup& op) {
  const ArgIndex condition = op.input("Condition");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& c = ctx.in(condition);
    return dispatch<Types<bool, float, double, int16_t, int32_t, int64_t>>(
        c.dtype(), [&](auto tag) -> Status {
          return write_coordinates<typename decltype(tag)::type>(c, ctx.out(out));
        });
  });
}

StatusOr<Kernel> masked_select(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex mask_arg = op.input("Mask");
  const ArgIndex out_arg = op.output("Y");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const Tensor& mask = ctx.in(mask_arg);
    MILLRACE_RETURN_IF_ERROR(check_condition(ctx, mask, x, "Mask"));
    const bool* const m = mask.data<bool>();
    const int64_t found = std::count(m, m + x.numel(), true);
    Tensor& out = ctx.out(out_arg);
    MILLRACE_RETURN_IF_ERROR(size_output(out, x.dtype(), {found}));
    return dispatch<AllTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* to = out.data<T>();
      for (int64_t i = 0; i < x.numel(); ++i) {
        if (m[i]) *to++ = x.data<T>()[i];
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> masked_select_grad(const KernelSetup& op) {
  const ArgIndex mask_arg = op.input("Mask");
  const ArgIndex grad_arg = op.input("Y@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tensor* const to = ctx.find_out(x_grad);
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const mask, needed(ctx, mask_arg, "Mask"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, grad_arg, "Y@GRAD"));
    MILLRACE_RETURN_IF_ERROR(check_condition(ctx, *mask, *to, "Mask"));
    const bool* const m = mask->data<bool>();
    if (std::count(m, m + to->numel(), true) != grad->numel() || grad->dtype() != to->dtype())
      return ctx.error("Y@GRAD {} must have an element for each true one of Mask", describe(*grad));
    return dispatch<AllTypes>(to->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const T* from = grad->data<T>();
      T* const dx = to->data<T>();
      for (int64_t i = 0; i < to->numel(); ++i) dx[i] = m[i] ? *from++ : T{};
      return Ok();
    });
  });
}

}  // namespace

void add_tensor_where(KernelRegistry& registry) {
  registry.add("where", where);
  registry.add("where_grad", where_grad);
  registry.add("where_index", where_index);
  registry.add("masked_select", masked_select);
  registry.add("masked_select_grad", masked_select_grad);
}

}  // namespace millrace::kernels
