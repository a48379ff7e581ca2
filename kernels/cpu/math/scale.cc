#include "kernels/cpu/int_list.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct Factors {
  double scale;
  double bias;
  bool bias_after;
};

template <typename T>
void scale_values(std::span<const T> x, std::span<T> out, const Factors& f) {
  using C = Compute<T>;
  const C scale = static_cast<C>(f.scale);
  const C bias = static_cast<C>(f.bias_after ? f.bias : f.bias * f.scale);
  for (size_t i = 0; i < x.size(); ++i)
    out[i] = static_cast<T>(scale * static_cast<C>(x[i]) + bias);
}

// For integers the bias is added as an integer, before or after the product as the attribute says.
template <typename T>
requires std::is_integral_v<T>
void scale_values(std::span<const T> x, std::span<T> out, const Factors& f) {
  const T scale = static_cast<T>(f.scale);
  const T bias = static_cast<T>(f.bias);
  for (size_t i = 0; i < x.size(); ++i)
    out[i] = static_cast<T>(f.bias_after ? scale * x[i] + bias : scale * (x[i] + bias));
}

Status scale_tensor(const Tensor& x, Tensor& out, const Factors& f) {
  return dispatch<AllNumberTypes>(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    scale_values<T>(x.values<T>(), out.values<T>(), f);
    return Ok();
  });
}

double first_value(const Tensor& tensor) {
  double value = 0;
  (void)dispatch<FloatTypes>(tensor.dtype(), [&](auto tag) {
    value = static_cast<double>(*tensor.data<typename decltype(tag)::type>());
    return Ok();
  });
  return value;
}

StatusOr<Kernel> scale(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex factor = op.input("ScaleTensor");
  const ArgIndex out = op.output("Out");
  const Factors fixed{op.attr<float>("scale"), op.attr<float>("bias"),
                      op.attr<bool>("bias_after_scale")};
  return Kernel([=](const KernelContext& ctx) -> Status {
    Factors f = fixed;
    if (const Tensor* const given = ctx.find_in(factor)) f.scale = first_value(*given);
    if (const auto* const rows = ctx.in_value(x).get_if<SelectedRows>()) {
      auto& to = ctx.out_value(out).as<SelectedRows>();
      if (&to != rows) {
        to.rows = rows->rows;
        to.height = rows->height;
        MILLRACE_RETURN_IF_ERROR(to.value.resize(rows->value.dtype(), rows->value.dims()));
      }
      return scale_tensor(rows->value, to.value, f);
    }
    // inference does not size an output that is declared as selected rows
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_output(to, from.dtype(), from.dims()));
    return scale_tensor(from, to, f);
  });
}

}  // namespace

void add_math_scale(KernelRegistry& registry) {
  registry.add("scale", scale);
}

}  // namespace millrace::kernels
