#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/extent.h"
#include "kernels/cpu/nest.h"
#include "kernels/cpu/sums.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/wide_elements.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace softmax_kernels {
namespace {

// Lower bound to which exponents are clipped, as in the original; log_softmax is never smaller.
template <typename T>
constexpr T kLowest = T(-64);

template <bool kLog, typename T>
void forward_row(const T* x, T* out, int64_t count) {
  const T top = combine_lanes(x, count, -std::numeric_limits<T>::infinity(),
                              [](T a, T b) { return a > b ? a : b; });
  if constexpr (kLog) {
    constexpr int64_t kPiece = 512;
    std::array<T, kPiece> powers;
    T sum = 0;
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      const int64_t length = std::min(kPiece, count - begin);
      T* const to = powers.data();
      for (int64_t i = 0; i < length; ++i) {
        const T rest = x[begin + i] - top;
        const T cut = rest < kLowest<T> ? kLowest<T> : rest;
        out[begin + i] = cut;
        to[i] = vmath::exp(cut);
      }
      sum += sum_of(to, length);
    }
    const T shift = std::log(sum);
    for (int64_t i = 0; i < count; ++i) out[i] -= shift;
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const T rest = x[i] - top;
      out[i] = vmath::exp(rest < kLowest<T> ? kLowest<T> : rest);
    }
    const T scale = T(1) / sum_of(out, count);
    for (int64_t i = 0; i < count; ++i) out[i] *= scale;
  }
}

template <bool kLog, typename T>
void backward_row(const T* out, const T* dout, T* dx, int64_t count) {
  if constexpr (kLog) {
    const T sum = sum_of(dout, count);
    for (int64_t i = 0; i < count; ++i) dx[i] = dout[i] - vmath::exp(out[i]) * sum;
  } else {
    T dot = 0;
    constexpr int64_t kPiece = 512;
    std::array<T, kPiece> products;
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      const int64_t length = std::min(kPiece, count - begin);
      T* const to = products.data();
      for (int64_t i = 0; i < length; ++i) to[i] = out[begin + i] * dout[begin + i];
      dot += sum_of(to, length);
    }
    for (int64_t i = 0; i < count; ++i) dx[i] = out[i] * (dout[i] - dot);
  }
}

// Number of columns processed together if the axis is not the last one.
constexpr int64_t kColumns = 64;
template <typename T>
using Columns = std::array<T, kColumns>;

template <bool kLog, typename T>
void forward_columns(const T* x, T* out, const Extent& extent, int64_t width) {
  Columns<T> top_store;
  Columns<T> sum_store{};
  T* const top = top_store.data();
  T* const sum = sum_store.data();
  std::copy_n(x, width, top);
  for (int64_t k = 1; k < extent.count; ++k) {
    const T* const row = x + k * extent.inner;
    for (int64_t i = 0; i < width; ++i) top[i] = row[i] > top[i] ? row[i] : top[i];
  }
  for (int64_t k = 0; k < extent.count; ++k) {
    const T* const row = x + k * extent.inner;
    T* const to = out + k * extent.inner;
    for (int64_t i = 0; i < width; ++i) {
      const T rest = row[i] - top[i];
      const T cut = rest < kLowest<T> ? kLowest<T> : rest;
      const T power = vmath::exp(cut);
      sum[i] += power;
      to[i] = kLog ? cut : power;
    }
  }
  for (int64_t i = 0; i < width; ++i) sum[i] = kLog ? std::log(sum[i]) : T(1) / sum[i];
  for (int64_t k = 0; k < extent.count; ++k) {
    T* const to = out + k * extent.inner;
    for (int64_t i = 0; i < width; ++i) to[i] = kLog ? to[i] - sum[i] : to[i] * sum[i];
  }
}

template <bool kLog, typename T>
void backward_columns(const T* out, const T* dout, T* dx, const Extent& extent, int64_t width) {
  Columns<T> sum_store{};
  T* const sum = sum_store.data();
  for (int64_t k = 0; k < extent.count; ++k) {
    const int64_t at = k * extent.inner;
    for (int64_t i = 0; i < width; ++i) sum[i] += kLog ? dout[at + i] : out[at + i] * dout[at + i];
  }
  for (int64_t k = 0; k < extent.count; ++k) {
    const int64_t at = k * extent.inner;
    for (int64_t i = 0; i < width; ++i) {
      dx[at + i] = kLog ? dout[at + i] - vmath::exp(out[at + i]) * sum[i]
                        : out[at + i] * (dout[at + i] - sum[i]);
    }
  }
}

// Calls row(offset) or columns(offset, width) for every part of the extent.
template <typename Row, typename Column>
void each_part(CpuDevice& device, const Extent& extent, Row&& row, Column&& columns) {
  const int64_t slab = extent.count * extent.inner;
  if (slab == 0) return;
  device.parallel_for(extent.outer, std::max<int64_t>(1, kGrain / 4 / slab),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t o = begin; o < end; ++o) {
                          if (extent.inner == 1) {
                            row(o * slab);
                            continue;
                          }
                          for (int64_t i = 0; i < extent.inner; i += kColumns)
                            columns(o * slab + i, std::min(kColumns, extent.inner - i));
                        }
                      });
}

template <bool kLog>
StatusOr<Kernel> forward(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  const int64_t axis = op.attr<int32_t>("axis");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    Tensor& out = ctx.out(out_arg);
    MILLRACE_ASSIGN_OR_RETURN(const Extent extent, extent_of(x.dims(), axis, "axis"));
    return with_wide_elements(ctx.device(), x, out, [&](const auto* src, auto* dst) {
      each_part(
          ctx.device(), extent,
          [&](int64_t at) { forward_row<kLog>(src + at, dst + at, extent.count); },
          [&](int64_t at, int64_t width) {
            forward_columns<kLog>(src + at, dst + at, extent, width);
          });
      return Ok();
    });
  });
}

template <bool kLog>
StatusOr<Kernel> backward(const KernelSetup& op) {
  const ArgIndex out_arg = op.input("Out");
  const ArgIndex dout_arg = op.input("Out@GRAD");
  const ArgIndex dx_arg = op.output("X@GRAD");
  const int64_t axis = op.attr<int32_t>("axis");
  if (!dx_arg) return Kernel([](const KernelContext&) { return Ok(); });
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& out = ctx.in(out_arg);
    const Tensor& dout = ctx.in(dout_arg);
    if (dout.dims() != out.dims() || dout.dtype() != out.dtype())
      return ctx.error("Out@GRAD is {}, expected {}", describe(dout), describe(out));
    MILLRACE_ASSIGN_OR_RETURN(const Extent extent, extent_of(out.dims(), axis, "axis"));
    const DType dtype = wide_type(out.dtype());
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const y, elements_as(ctx.device(), out, dtype, 0));
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const dy, elements_as(ctx.device(), dout, dtype, 1));
    MILLRACE_ASSIGN_OR_RETURN(const WideOutput to,
                              WideOutput::open(ctx.device(), ctx.out(dx_arg), dtype, 2));
    MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* const src = reinterpret_cast<const T*>(y);
      const T* const grad = reinterpret_cast<const T*>(dy);
      T* const dst = to.data<T>();
      each_part(
          ctx.device(), extent,
          [&](int64_t at) { backward_row<kLog>(src + at, grad + at, dst + at, extent.count); },
          [&](int64_t at, int64_t width) {
            backward_columns<kLog>(src + at, grad + at, dst + at, extent, width);
          });
      return Ok();
    }));
    return to.finish();
  });
}

}  // namespace
}  // namespace softmax_kernels

/// softmax and log_softmax.
void add_activation_softmax(KernelRegistry& registry) {
  using namespace softmax_kernels;
  registry.add("softmax", forward<false>);
  registry.add("softmax_grad", backward<false>);
  registry.add("log_softmax", forward<true>);
  registry.add("log_softmax_grad", backward<true>);
}

}  // namespace millrace::kernels
