#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/int_list.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// The value of a one-element tensor as T.
template <typename T>
StatusOr<T> one_value(const Tensor& tensor, const char* slot) {
  if (tensor.numel() != 1) {
    return KernelContext::error("{} must have one element, found {}", slot, describe(tensor));
  }
  T value{};
  MILLRACE_RETURN_IF_ERROR(
      convert(tensor.dtype(), tensor.raw(), kDTypeOf<T>, reinterpret_cast<std::byte*>(&value), 1));
  return value;
}

// A larger count is treated as a mistake.
constexpr int64_t kMostBytes = int64_t{1} << 30U;

Status check_count(const char* what, double count, DType dtype) {
  if (count * static_cast<double>(dtype_size(dtype)) <= static_cast<double>(kMostBytes))
    return Ok();
  return {StatusCode::kResource,
          fmt::format("{} asks for {} elements, at most {} bytes are allowed", what, count,
                      kMostBytes)};
}

template <typename T>
StatusOr<int64_t> range_length(T start, T end, T step) {
  if (step == 0) return KernelContext::error("Step is 0");
  if constexpr (std::is_integral_v<T>) {
    const auto span = static_cast<int64_t>(end) - static_cast<int64_t>(start);
    const auto stride = static_cast<int64_t>(step);
    if (span != 0 && (span < 0) != (stride < 0))
      return KernelContext::error("Step {} leads from Start {} away from End {}", step, start, end);
    const int64_t size = span < 0 ? -span : span;
    const int64_t each = stride < 0 ? -stride : stride;
    return (size + each - 1) / each;
  } else {
    const double count = std::ceil((static_cast<double>(end) - static_cast<double>(start)) /
                                   static_cast<double>(step));
    if (!(count >= 0) || count > 0x1p53)
      return KernelContext::error("Step {} does not lead from Start {} to End {}",
                                  static_cast<double>(step), static_cast<double>(start),
                                  static_cast<double>(end));
    return static_cast<int64_t>(count);
  }
}

StatusOr<Kernel> range(const KernelSetup& op) {
  const ArgIndex start_arg = op.input("Start");
  const ArgIndex end_arg = op.input("End");
  const ArgIndex step_arg = op.input("Step");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    return dispatch<NumberTypes>(ctx.in(start_arg).dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MILLRACE_ASSIGN_OR_RETURN(const T start, one_value<T>(ctx.in(start_arg), "Start"));
      MILLRACE_ASSIGN_OR_RETURN(const T end, one_value<T>(ctx.in(end_arg), "End"));
      MILLRACE_ASSIGN_OR_RETURN(const T step, one_value<T>(ctx.in(step_arg), "Step"));
      MILLRACE_ASSIGN_OR_RETURN(const int64_t count, range_length(start, end, step));
      MILLRACE_RETURN_IF_ERROR(check_count("the range", static_cast<double>(count), kDTypeOf<T>));
      Tensor& to = ctx.out(out);
      MILLRACE_RETURN_IF_ERROR(size_output(to, kDTypeOf<T>, {count}));
      T value = start;
      for (int64_t i = 0; i < count; ++i) {
        to.data<T>()[i] = value;
        if (i + 1 < count) value = static_cast<T>(value + step);
      }
      return Ok();
    });
  });
}

// Each half is computed from its end of the range, so that the last element is exactly Stop.
template <typename T>
void fill_line(double start, double stop, int64_t count, T* out) {
  const double step = count > 1 ? (stop - start) / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = i < (count + 1) / 2 ? start + step * static_cast<double>(i)
                                             : stop - step * static_cast<double>(count - 1 - i);
    out[i] = static_cast<T>(value);
  }
}

StatusOr<Kernel> linspace(const KernelSetup& op) {
  const ArgIndex start_arg = op.input("Start");
  const ArgIndex stop_arg = op.input("Stop");
  const ArgIndex num_arg = op.input("Num");
  const ArgIndex out = op.output("Out");
  const DType dtype = op.dtype_attr("dtype");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t count, one_int(ctx.in(num_arg), "Num"));
    if (count < 1) return ctx.error("Num is {}, expected at least 1", count);
    MILLRACE_RETURN_IF_ERROR(check_count("Num", static_cast<double>(count), dtype));
    MILLRACE_ASSIGN_OR_RETURN(const double start, one_value<double>(ctx.in(start_arg), "Start"));
    MILLRACE_ASSIGN_OR_RETURN(const double stop, one_value<double>(ctx.in(stop_arg), "Stop"));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_output(to, dtype, {count}));
    return dispatch<NumberTypes>(dtype, [&](auto tag) -> Status {
      fill_line(start, stop, count, to.data<typename decltype(tag)::type>());
      return Ok();
    });
  });
}

}  // namespace

void add_random_number_sequences(KernelRegistry& registry) {
  registry.add("range", range);
  registry.add("linspace", linspace);
}

}  // namespace millrace::kernels
