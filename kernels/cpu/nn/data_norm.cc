#include <cmath>

#include "kernels/cpu/nn/channels.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace data_norm_kernels {
namespace {

struct DataNormAttrs {
  double epsilon = 0;
  int64_t slot = -1;    // width of a slot; < 1: no slots
  bool affine = false;  // scale_w and bias apply
};

DataNormAttrs read_attrs(const KernelSetup& op) {
  return {op.attr<float>("epsilon"), op.attr<int64_t>("slot_dim"),
          op.attr<bool>("enable_scale_and_shift")};
}

// X as rows of columns; with slots, the number of columns must be a multiple of their width.
struct DataNormMatrix {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t slot = 0;  // width that is skipped together; all columns if there are no slots
  bool slots = false;
};

StatusOr<DataNormMatrix> matrix_of(const Tensor& x, const DataNormAttrs& attrs) {
  if (x.rank() < 2) return KernelContext::error("X must be a matrix, found {}", describe(x));
  DataNormMatrix m;
  m.columns = x.dims().back();
  m.rows = m.columns == 0 ? 0 : x.numel() / m.columns;
  m.slots = attrs.slot > 0;
  m.slot = m.slots ? attrs.slot : m.columns;
  if (m.slots && m.columns % m.slot != 0) {
    return KernelContext::error("attribute 'slot_dim' ({}) does not divide the columns of X {}",
                                attrs.slot, describe(x));
  }
  return m;
}

// A slot counts as absent if its first column, the number of shows, is 0.
template <typename T>
bool absent(const T* slot) {
  return std::fabs(*slot) < static_cast<T>(1e-7);
}

// Calls body(first element, first column, whether it is absent) for each slot of each row.
template <typename T, typename Body>
void for_slots(const DataNormMatrix& m, const T* x, Body&& body) {
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.columns; c += m.slot) {
      const int64_t at = r * m.columns + c;
      body(at, c, m.slots && absent(x + at));
    }
  }
}

template <typename T>
struct Statistics {
  const T* size;
  const T* sum;
  const T* square_sum;
};

struct DataNormForwardArgs {
  ArgIndex x, size, sum, square_sum, scale, bias, y, means, scales;
};

template <typename T>
Status run_forward(const KernelContext& ctx, const DataNormForwardArgs& args,
                   const DataNormAttrs& attrs) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const DataNormMatrix m, matrix_of(*in, attrs));
  const int64_t n = m.columns;
  Statistics<T> s{};
  MILLRACE_ASSIGN_OR_RETURN(s.size, needed_values<T>(ctx, args.size, "BatchSize", n));
  MILLRACE_ASSIGN_OR_RETURN(s.sum, needed_values<T>(ctx, args.sum, "BatchSum", n));
  MILLRACE_ASSIGN_OR_RETURN(s.square_sum,
                            needed_values<T>(ctx, args.square_sum, "BatchSquareSum", n));
  MILLRACE_ASSIGN_OR_RETURN(T * means, channel_results<T>(ctx.find_out(args.means), "Means", n));
  MILLRACE_ASSIGN_OR_RETURN(T * scales, channel_results<T>(ctx.find_out(args.scales), "Scales", n));
  const T* weight = nullptr;
  const T* bias = nullptr;
  if (attrs.affine) {
    MILLRACE_ASSIGN_OR_RETURN(weight, needed_values<T>(ctx, args.scale, "scale_w", n));
    MILLRACE_ASSIGN_OR_RETURN(bias, needed_values<T>(ctx, args.bias, "bias", n));
  }
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            ctx.device().scratch(static_cast<size_t>(2 * n) * sizeof(T)));
  if (means == nullptr) means = reinterpret_cast<T*>(memory);
  if (scales == nullptr) scales = reinterpret_cast<T*>(memory) + n;
  for (int64_t c = 0; c < n; ++c) {
    means[c] = s.sum[c] / s.size[c];
    scales[c] = std::sqrt(s.size[c] / s.square_sum[c]);
  }
  const T* const x = in->data<T>();
  T* const y = ctx.out(args.y).data<T>();
  for_slots(m, x, [&](int64_t at, int64_t c, bool skip) {
    if (skip) {
      std::fill_n(y + at, m.slot, T{0});
      return;
    }
    for (int64_t i = 0; i < m.slot; ++i) y[at + i] = (x[at + i] - means[c + i]) * scales[c + i];
    for (int64_t i = 0; weight != nullptr && i < m.slot; ++i)
      y[at + i] = y[at + i] * weight[c + i] + bias[c + i];
  });
  return Ok();
}

StatusOr<Kernel> data_norm(const KernelSetup& op) {
  const DataNormForwardArgs args{
      op.input("X"),       op.input("BatchSize"), op.input("BatchSum"), op.input("BatchSquareSum"),
      op.input("scale_w"), op.input("bias"),      op.output("Y"),       op.output("Means"),
      op.output("Scales")};
  return Kernel([args, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    return dispatch<FloatTypes>(ctx.in(args.x).dtype(), [&](auto tag) {
      return run_forward<typename decltype(tag)::type>(ctx, args, attrs);
    });
  });
}

struct DataNormBackwardArgs {
  ArgIndex x, dy, scale, means, scales;
  ArgIndex dx, dsize, dsum, dsquare_sum, dscale, dbias;
};

template <typename T>
struct DataNormBackward {
  const T* x;
  const T* dy;
  const T* weight;  // null without scale_w
  const T* means;
  const T* scales;
};

// Increments of the statistics: number, sum and squares of the rows. With slots, they are averaged
// over the rows that have the slot.
template <typename T>
void statistics_growth(const DataNormMatrix& m, const DataNormBackward<T>& b, T epsilon, T* size,
                       T* sum, T* square_sum) {
  std::fill_n(size, m.columns, T{0});
  std::fill_n(sum, m.columns, T{0});
  std::fill_n(square_sum, m.columns, T{0});
  for_slots(m, b.x, [&](int64_t at, int64_t c, bool skip) {
    for (int64_t i = 0; !skip && i < m.slot; ++i) {
      const T distance = b.x[at + i] - b.means[c + i];
      size[c + i] += T{1};
      sum[c + i] += b.x[at + i];
      square_sum[c + i] += distance * distance;
    }
  });
  for (int64_t c = 0; c < m.columns; ++c) {
    const T count = size[c];
    if (count < T{1}) continue;
    if (m.slots) {
      sum[c] /= count;
      square_sum[c] /= count;
      size[c] = T{1};
    }
    square_sum[c] += count * epsilon;
  }
}

template <typename T>
void input_gradient(const DataNormMatrix& m, const DataNormBackward<T>& b, T* dx) {
  for_slots(m, b.x, [&](int64_t at, int64_t c, bool skip) {
    for (int64_t i = 0; i < m.slot; ++i) {
      dx[at + i] = b.dy[at + i] * b.scales[c + i];
      if (b.weight != nullptr) dx[at + i] *= skip ? T{0} : b.weight[c + i];
    }
  });
}

template <typename T>
void affine_gradient(const DataNormMatrix& m, const DataNormBackward<T>& b, T* dscale, T* dbias) {
  if (dscale != nullptr) std::fill_n(dscale, m.columns, T{0});
  if (dbias != nullptr) std::fill_n(dbias, m.columns, T{0});
  for_slots(m, b.x, [&](int64_t at, int64_t c, bool skip) {
    for (int64_t i = 0; !skip && i < m.slot; ++i) {
      const T normal = (b.x[at + i] - b.means[c + i]) * b.scales[c + i];
      if (dscale != nullptr) dscale[c + i] += b.dy[at + i] * normal;
      if (dbias != nullptr) dbias[c + i] += b.dy[at + i];
    }
  });
}

template <typename T>
Status run_backward(const KernelContext& ctx, const DataNormBackwardArgs& args,
                    const DataNormAttrs& attrs) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dy, needed(ctx, args.dy, "Y@GRAD"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const means, needed(ctx, args.means, "Means"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const scales, needed(ctx, args.scales, "Scales"));
  MILLRACE_RETURN_IF_ERROR(check_alike(*x, "X", *dy, "Y@GRAD"));
  MILLRACE_ASSIGN_OR_RETURN(const DataNormMatrix m, matrix_of(*x, attrs));
  const int64_t n = m.columns;
  DataNormBackward<T> b{x->data<T>(), dy->data<T>(), nullptr, nullptr, nullptr};
  MILLRACE_ASSIGN_OR_RETURN(b.means, channel_values<T>(means, "Means", n));
  MILLRACE_ASSIGN_OR_RETURN(b.scales, channel_values<T>(scales, "Scales", n));
  if (attrs.affine) {
    MILLRACE_ASSIGN_OR_RETURN(b.weight, needed_values<T>(ctx, args.scale, "scale_w", n));
  }
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, args.dx, *x));
  if (dx != nullptr) input_gradient(m, b, dx->data<T>());
  std::array<Tensor*, 3> growth = {ctx.find_out(args.dsize), ctx.find_out(args.dsum),
                                   ctx.find_out(args.dsquare_sum)};
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            ctx.device().scratch(static_cast<size_t>(3 * n) * sizeof(T)));
  std::array<T*, 3> to{};
  for (size_t i = 0; i < 3; ++i) {
    if (growth[i] != nullptr) MILLRACE_RETURN_IF_ERROR(growth[i]->resize(x->dtype(), {n}));
    to[i] = growth[i] != nullptr ? growth[i]->data<T>()
                                 : reinterpret_cast<T*>(memory) + static_cast<int64_t>(i) * n;
  }
  statistics_growth(m, b, static_cast<T>(attrs.epsilon), to[0], to[1], to[2]);
  MILLRACE_ASSIGN_OR_RETURN(T* const dscale,
                            channel_results<T>(ctx.find_out(args.dscale), "scale_w@GRAD", n));
  MILLRACE_ASSIGN_OR_RETURN(T* const dbias,
                            channel_results<T>(ctx.find_out(args.dbias), "bias@GRAD", n));
  affine_gradient(m, b, dscale, dbias);
  return Ok();
}

// The outputs BatchSize, BatchSum and BatchSquareSum are not changed, as on the original's CPU: the
// op that trains the statistics adds their gradients.
StatusOr<Kernel> data_norm_grad(const KernelSetup& op) {
  const DataNormBackwardArgs args{op.input("X"),
                                  op.input("Y@GRAD"),
                                  op.input("scale_w"),
                                  op.input("Means"),
                                  op.input("Scales"),
                                  op.output("X@GRAD"),
                                  op.output("BatchSize@GRAD"),
                                  op.output("BatchSum@GRAD"),
                                  op.output("BatchSquareSum@GRAD"),
                                  op.output("scale_w@GRAD"),
                                  op.output("bias@GRAD")};
  return Kernel([args, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    return dispatch<FloatTypes>(ctx.in(args.x).dtype(), [&](auto tag) {
      return run_backward<typename decltype(tag)::type>(ctx, args, attrs);
    });
  });
}

}  // namespace
}  // namespace data_norm_kernels

void add_nn_data_norm(KernelRegistry& registry) {
  using namespace data_norm_kernels;
  registry.add("data_norm", data_norm);
  registry.add("data_norm_grad", data_norm_grad);
}

}  // namespace millrace::kernels
