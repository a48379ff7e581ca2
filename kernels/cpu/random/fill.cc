#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "kernels/cpu/random/shape_arg.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// Ops that create tensors of one value, or of listed values.
namespace millrace::kernels {
namespace fill_kernels {
namespace {

// A number of a program; the integer is set if a double cannot represent it.
struct Number {
  double real = 0;
  std::optional<int64_t> integer;
};

StatusOr<Number> parse_number(const KernelSetup& op, const std::string& text) {
  Number number;
  char* end = nullptr;
  number.real = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0')
    return op.error("attribute 'str_value' is '{}', expected a number", text);
  errno = 0;
  const int64_t integer = std::strtoll(text.c_str(), &end, 10);
  // As in the original, integers are converted through double. Those near the limits of i64, which
  // a double would round out of range, are used exactly.
  constexpr double kEnd = 9223372036854775808.0;
  if (*end == '\0' && errno == 0 && (number.real >= kEnd || number.real < -kEnd))
    number.integer = integer;
  return number;
}

template <typename T>
T value_as(const Number& number) {
  if constexpr (std::is_same_v<T, bool>) {
    return number.real != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return number.integer ? static_cast<T>(*number.integer)
                          : static_cast<T>(static_cast<int64_t>(number.real));
  } else {
    return static_cast<T>(static_cast<Compute<T>>(number.real));
  }
}

Status fill_kernel(CpuDevice& device, Tensor& out, const Number& number) {
  return dispatch<AllTypes>(out.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    T* const to = out.data<T>();
    const T value = value_as<T>(number);
    device.parallel_for(out.numel(), 65536, [&](int64_t begin, int64_t end) {
      std::fill(to + begin, to + end, value);
    });
    return Ok();
  });
}

StatusOr<Number> number_of(const Tensor& tensor) {
  Number number;
  if (tensor.numel() != 1)
    return KernelContext::error("ValueTensor must have one element, found {}", describe(tensor));
  MILLRACE_RETURN_IF_ERROR(dispatch<AllTypes>(tensor.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    number.real = static_cast<double>(static_cast<Compute<T>>(*tensor.data<T>()));
    if constexpr (std::is_integral_v<T>) number.integer = static_cast<int64_t>(*tensor.data<T>());
    return Ok();
  }));
  return number;
}

StatusOr<Kernel> fill_constant(const KernelSetup& op) {
  const ArgIndex value_tensor = op.input("ValueTensor");
  const ArgIndex out = op.output("Out");
  const ShapeArg shape(op);
  const auto text = op.attr<std::string>("str_value");
  Number fixed;
  fixed.real = op.attr<float>("value");
  if (!text.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(fixed, parse_number(op, text));
  }
  return Kernel([=](const KernelContext& ctx) -> Status {
    Number number = fixed;
    if (const Tensor* const given = ctx.find_in(value_tensor)) {
      MILLRACE_ASSIGN_OR_RETURN(number, number_of(*given));
    }
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, shape.create(ctx, out));
    return fill_kernel(ctx.device(), *to, number);
  });
}

template <typename T>
void copy_listed(const std::vector<float>& values, T* out) {
  for (size_t i = 0; i < values.size(); ++i) out[i] = value_as<T>({values[i], std::nullopt});
}

StatusOr<Kernel> fill_listed(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  const ShapeArg shape(op);
  const auto values = op.attr<std::vector<float>>("value");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, shape.create(ctx, out));
    if (static_cast<size_t>(to->numel()) != values.size())
      return ctx.error("attribute 'value' has {} values for {}", values.size(), describe(*to));
    return dispatch<AllTypes>(to->dtype(), [&](auto tag) -> Status {
      copy_listed(values, to->data<typename decltype(tag)::type>());
      return Ok();
    });
  });
}

// A finite value beyond the range of a float type is an error; infinity is not.
template <typename T>
bool fits_type(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value >= 0 && value <= 1;
  } else if constexpr (std::is_integral_v<T>) {
    // the limits of i64 are not representable as double, but the next power of two is
    constexpr double kEnd = -2.0 * static_cast<double>(std::numeric_limits<T>::min() / 2);
    constexpr double kUnsignedEnd = 1.0 + static_cast<double>(std::numeric_limits<T>::max());
    const double whole = std::trunc(value);
    return std::is_signed_v<T> ? whole >= -kEnd && whole < kEnd
                               : whole >= 0 && whole < kUnsignedEnd;
  } else {
    return !std::isfinite(value) || std::isfinite(static_cast<double>(static_cast<Compute<T>>(
                                        static_cast<T>(static_cast<Compute<T>>(value)))));
  }
}

Status check_fits(double value, DType dtype) {
  return dispatch<AllTypes>(dtype, [&](auto tag) -> Status {
    if (fits_type<typename decltype(tag)::type>(value)) return Ok();
    return KernelContext::error("attribute 'value' is {}, which is beyond element type {}", value,
                                dtype_name(dtype));
  });
}

// Out gets the shape of X and, unless dtype is set, its element type. X may be an array.
StatusOr<Kernel> make_like(const KernelSetup& op, double value, int32_t dtype_number) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const auto type_for = [&](const Tensor& like) {
      return dtype_number == -1 ? like.dtype() : static_cast<DType>(dtype_number);
    };
    const Number number{value, std::nullopt};
    const auto like = [&](const Tensor& from, Tensor& to) -> Status {
      MILLRACE_RETURN_IF_ERROR(check_fits(number.real, type_for(from)));
      MILLRACE_RETURN_IF_ERROR(size_output(to, type_for(from), from.dims()));
      return fill_kernel(ctx.device(), to, number);
    };
    if (const auto* const array = ctx.in_value(x).get_if<TensorArray>()) {
      TensorArray result(array->size());
      for (size_t i = 0; i < array->size(); ++i) {
        if (!(*array)[i].initialized()) continue;
        MILLRACE_RETURN_IF_ERROR(like((*array)[i], result[i]));
        result[i].set_lod((*array)[i].lod());
      }
      ctx.out_value(out).as<TensorArray>() = std::move(result);
      return Ok();
    }
    if (const auto* const rows = ctx.in_value(x).get_if<SelectedRows>()) {
      auto& to = ctx.out_value(out).as<SelectedRows>();
      to.rows = rows->rows;
      to.height = rows->height;
      return like(rows->value, to.value);
    }
    const Tensor* const from = ctx.find_in(x);
    if (from == nullptr) return ctx.error("input X holds no tensor");
    return like(*from, ctx.out(out));
  });
}

StatusOr<Kernel> fill_any_like(const KernelSetup& op) {
  return make_like(op, op.attr<float>("value"), op.attr<int32_t>("dtype"));
}
StatusOr<Kernel> fill_zeros_like(const KernelSetup& op) {
  return make_like(op, 0, -1);
}
StatusOr<Kernel> fill_zeros_like2(const KernelSetup& op) {
  return make_like(op, 0, op.attr<int32_t>("dtype"));
}

}  // namespace
}  // namespace fill_kernels

void add_random_fill(KernelRegistry& registry) {
  using namespace fill_kernels;
  registry.add("fill_constant", fill_constant);
  registry.add("fill_constant_batch_size_like", fill_constant);
  registry.add("fill", fill_listed);
  registry.add("fill_any_like", fill_any_like);
  registry.add("fill_zeros_like", fill_zeros_like);
  registry.add("fill_zeros_like2", fill_zeros_like2);
}

}  // namespace millrace::kernels
