#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

namespace millrace::kernels {
namespace assign_kernels {
namespace {

Status copy_tensor(const KernelContext& ctx, const Tensor& from, Tensor& to) {
  if (&from == &to) return Ok();
  MILLRACE_RETURN_IF_ERROR(size_output(to, from.dtype(), from.dims()));
  copy_bytes(ctx.device(), to.raw(), from.raw(), from.bytes());
  to.set_lod(from.lod());
  return Ok();
}

StatusOr<Kernel> assign_kernel(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!x || !ctx.in_value(x).initialized()) return Ok();
    const Value& from = ctx.in_value(x);
    Value& to = ctx.out_value(out);
    if (&from == &to) return Ok();
    if (const auto* const tensor = from.get_if<Tensor>())
      return copy_tensor(ctx, *tensor, to.as<Tensor>());
    MILLRACE_ASSIGN_OR_RETURN(to, clone(from));
    return Ok();
  });
}

// The numbers of an assign_value op: exact integers, or floats.
struct Listed {
  std::vector<int64_t> integers;
  std::vector<double> reals;
  bool exact = false;
};

const char* values_attr(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "bool_values";
    case DType::kInt32:
      return "int32_values";
    case DType::kInt64:
      return "int64_values";
    case DType::kFloat32:
      return "fp32_values";
    default:
      return "fp64_values";
  }
}

// Newer releases write one list for all element types; older ones write one list per type.
Listed read_values(const KernelSetup& op, DType dtype) {
  Listed out;
  out.exact = !is_floating(dtype);
  if (const AttrValue* const values = op.op().find_attr("values");
      values != nullptr && values->kind() == AttrKind::kScalars && !values->scalars().empty()) {
    for (const Scalar& scalar : values->scalars()) {
      const bool real =
          scalar.type == Scalar::Type::kFloat64 || scalar.type == Scalar::Type::kComplex;
      const int64_t integer = scalar.type == Scalar::Type::kBool ? (scalar.boolean ? 1 : 0)
                              : real                             ? static_cast<int64_t>(scalar.real)
                                                                 : scalar.integer;
      out.integers.push_back(integer);
      out.reals.push_back(real ? scalar.real : static_cast<double>(integer));
    }
    return out;
  }
  if (out.exact) {
    out.integers = op.attr<std::vector<int64_t>>(values_attr(dtype));
  } else if (dtype == DType::kFloat32) {
    const auto floats = op.attr<std::vector<float>>("fp32_values");
    out.reals.assign(floats.begin(), floats.end());
  } else {
    out.reals = op.attr<std::vector<double>>("fp64_values");
  }
  return out;
}

StatusOr<Kernel> assign_value(const KernelSetup& op) {
  const ArgIndex out_arg = op.output("Out");
  const DType dtype = op.dtype_attr("dtype");
  const auto shape = op.attr<std::vector<int64_t>>("shape");
  const Listed values = read_values(op, dtype);
  const size_t count = values.exact ? values.integers.size() : values.reals.size();
  if (ops::dims_product(shape) != static_cast<int64_t>(count))
    return op.error("there are {} values for attribute 'shape' {}", count, ops::dims_text(shape));
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tensor& out = ctx.out(out_arg);
    MILLRACE_RETURN_IF_ERROR(size_output(out, dtype, shape));
    return dispatch<AllTypes>(dtype, [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* const to = out.data<T>();
      for (size_t i = 0; i < count; ++i) {
        if (values.exact) {
          to[i] = static_cast<T>(static_cast<Compute<T>>(values.integers[i]));
        } else {
          to[i] = static_cast<T>(static_cast<Compute<T>>(values.reals[i]));
        }
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> increment(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  const auto step = op.attr<float>("step");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    if (x.numel() != 1) return ctx.error("X must have one element, found {}", describe(x));
    Tensor& out = ctx.out(out_arg);
    return dispatch<AllNumberTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      using C = Compute<T>;
      *out.data<T>() = static_cast<T>(static_cast<C>(*x.data<T>()) + static_cast<C>(step));
      return Ok();
    });
  });
}

StatusOr<Kernel> is_empty(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    *ctx.out(out).data<bool>() = ctx.in(x).numel() == 0;
    return Ok();
  });
}

StatusOr<Kernel> memory_helper_grad(const KernelSetup& op) {
  const GradientArgs gradient(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kUnset);
    if (g && g.from->initialized()) return copy_tensor(ctx, *g.from, *g.to);
    if (g.to == nullptr) return Ok();
    if (!g.to->initialized())
      return ctx.error(
          "Out@GRAD and X are both missing, one of which must determine the shape of X@GRAD");
    fill_zero(ctx.device(), *g.to);
    return Ok();
  });
}

}  // namespace
}  // namespace assign_kernels

void add_control_flow_assign(KernelRegistry& registry) {
  using namespace assign_kernels;
  registry.add("assign", assign_kernel);
  registry.add("assign_value", assign_value);
  registry.add("increment", increment);
  registry.add("is_empty", is_empty);
  registry.add("memcpy", assign_kernel);
  registry.add("rnn_memory_helper", assign_kernel);
  registry.add("rnn_memory_helper_grad", memory_helper_grad);
}

}  // namespace millrace::kernels
