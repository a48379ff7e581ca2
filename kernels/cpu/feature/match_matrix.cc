#include <algorithm>
#include <memory>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// match_matrix_tensor: x W[:, t] y' for every pair of rows of the sequences of X and Y. X W is
// computed once for all sequences, followed by one product for each sequence and t.
namespace millrace::kernels {
namespace match_matrix {
namespace {

struct MatchSizes {
  llvm::ArrayRef<int64_t> x_ends;
  llvm::ArrayRef<int64_t> y_ends;
  int64_t rows = 0;  // of X
  int64_t x_width = 0;
  int64_t y_width = 0;
  int64_t channels = 0;

  [[nodiscard]] size_t sequences() const { return x_ends.size() - 1; }
  [[nodiscard]] int64_t x_rows(size_t i) const { return x_ends[i + 1] - x_ends[i]; }
  [[nodiscard]] int64_t y_rows(size_t i) const { return y_ends[i + 1] - y_ends[i]; }
  /// Columns of X W.
  [[nodiscard]] int64_t stride() const { return channels * y_width; }
  [[nodiscard]] int64_t matches() const {
    int64_t sum = 0;
    for (size_t i = 0; i < sequences(); ++i) sum += channels * x_rows(i) * y_rows(i);
    return sum;
  }
};

StatusOr<MatchSizes> sizes_of_match(const KernelContext& ctx, const Tensor& x, const Tensor& y,
                                    const Tensor& w, int64_t channels) {
  MatchSizes s;
  MILLRACE_ASSIGN_OR_RETURN(s.x_ends, sequences_of(x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(s.y_ends, sequences_of(y, "Y"));
  if (s.x_ends.size() != s.y_ends.size())
    return ctx.error("X has {} sequences and Y {}, expected equal numbers", s.x_ends.size() - 1,
                     s.y_ends.size() - 1);
  if (x.rank() != 2 || y.rank() != 2 || w.rank() != 3 || w.dim(0) != x.dim(1) ||
      w.dim(1) != channels || w.dim(2) != y.dim(1) || x.dtype() != w.dtype() ||
      y.dtype() != w.dtype())
    return ctx.error("W must be [width of X, {}, width of Y] for X {} and Y {}, found {}", channels,
                     describe(x), describe(y), describe(w));
  s.rows = x.dim(0);
  s.x_width = x.dim(1);
  s.y_width = y.dim(1);
  s.channels = channels;
  return s;
}

struct MatchState {
  Workspace work;
  Gemm gemm;
};

template <typename T>
Status run(const KernelContext& ctx, const MatchSizes& s, const T* x, const T* y, const T* w,
           Tensor* kept, T* out, MatchState& state) {
  MILLRACE_ASSIGN_OR_RETURN(T* const xw,
                            state.work.output_or_take<T>(kept, 0, s.rows * s.stride()));
  MILLRACE_RETURN_IF_ERROR(state.gemm(
      ctx.device(), {.rows = s.rows, .columns = s.stride(), .inner = s.x_width}, x, w, xw));
  for (size_t i = 0; i < s.sequences(); ++i) {
    const GemmShape shape{.rows = s.x_rows(i),
                          .columns = s.y_rows(i),
                          .inner = s.y_width,
                          .b_transposed = true,
                          .a_stride = s.stride()};
    for (int64_t t = 0; t < s.channels; ++t) {
      MILLRACE_RETURN_IF_ERROR(state.gemm(
          ctx.device(), shape, static_cast<const T*>(xw + s.x_ends[i] * s.stride() + t * s.y_width),
          y + s.y_ends[i] * s.y_width, out));
      out += shape.rows * shape.columns;
    }
  }
  return Ok();
}

StatusOr<Kernel> match_matrix_tensor(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex w = op.input("W");
  const ArgIndex out = op.output("Out");
  const ArgIndex kept = op.output("Tmp");
  const int64_t channels = op.attr<int32_t>("dim_t");
  auto state = std::make_shared<MatchState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& rows = ctx.in(x);
    MILLRACE_ASSIGN_OR_RETURN(const MatchSizes s,
                              sizes_of_match(ctx, rows, ctx.in(y), ctx.in(w), channels));
    return dispatch<FloatTypes>(rows.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return run(ctx, s, rows.data<T>(), ctx.in(y).data<T>(), ctx.in(w).data<T>(),
                 ctx.find_out(kept), ctx.out(out).data<T>(), *state);
    });
  });
}

struct MatchGradients {
  Tensor* dx = nullptr;
  Tensor* dy = nullptr;
  Tensor* dw = nullptr;
};

// dy of every sequence from X W, and the gradient of X W.
template <typename T>
Status spread_matches(const KernelContext& ctx, const MatchSizes& s, const T* xw, const T* y,
                      const T* dout, T* dxw, T* dy, Gemm& gemm) {
  for (size_t i = 0; i < s.sequences(); ++i) {
    const int64_t x_rows = s.x_rows(i);
    const int64_t y_rows = s.y_rows(i);
    const T* const own_y = y + s.y_ends[i] * s.y_width;
    if (dy != nullptr) std::fill_n(dy + s.y_ends[i] * s.y_width, y_rows * s.y_width, T(0));
    for (int64_t t = 0; t < s.channels; ++t) {
      const int64_t at = s.x_ends[i] * s.stride() + t * s.y_width;
      MILLRACE_RETURN_IF_ERROR(
          gemm(ctx.device(),
               {.rows = x_rows, .columns = s.y_width, .inner = y_rows, .c_stride = s.stride()},
               dout, own_y, dxw + at));
      if (dy != nullptr) {
        MILLRACE_RETURN_IF_ERROR(gemm(ctx.device(),
                                      {.rows = y_rows,
                                       .columns = s.y_width,
                                       .inner = x_rows,
                                       .a_transposed = true,
                                       .accumulate = true,
                                       .b_stride = s.stride()},
                                      dout, xw + at, dy + s.y_ends[i] * s.y_width));
      }
      dout += x_rows * y_rows;
    }
  }
  return Ok();
}

template <typename T>
Status run_match_grad(const KernelContext& ctx, const MatchSizes& s, const Tensor& x,
                      const Tensor& y, const Tensor& w, const Tensor& dout, const MatchGradients& g,
                      MatchState& state) {
  const int64_t count = s.rows * s.stride();
  MILLRACE_ASSIGN_OR_RETURN(T* const xw, state.work.take<T>(0, count));
  MILLRACE_ASSIGN_OR_RETURN(T* const dxw, state.work.take<T>(1, count));
  MILLRACE_RETURN_IF_ERROR(state.gemm(ctx.device(),
                                      {.rows = s.rows, .columns = s.stride(), .inner = s.x_width},
                                      x.data<T>(), w.data<T>(), xw));
  MILLRACE_RETURN_IF_ERROR(spread_matches(ctx, s, static_cast<const T*>(xw), y.data<T>(),
                                          dout.data<T>(), dxw,
                                          g.dy == nullptr ? nullptr : g.dy->data<T>(), state.gemm));
  if (g.dx != nullptr) {
    MILLRACE_RETURN_IF_ERROR(state.gemm(
        ctx.device(),
        {.rows = s.rows, .columns = s.x_width, .inner = s.stride(), .b_transposed = true},
        static_cast<const T*>(dxw), w.data<T>(), g.dx->data<T>()));
  }
  if (g.dw == nullptr) return Ok();
  return state.gemm(
      ctx.device(),
      {.rows = s.x_width, .columns = s.stride(), .inner = s.rows, .a_transposed = true},
      x.data<T>(), static_cast<const T*>(dxw), g.dw->data<T>());
}

StatusOr<Kernel> match_matrix_tensor_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex w = op.input("W");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const ArgIndex dy = op.output("Y@GRAD");
  const ArgIndex dw = op.output("W@GRAD");
  const int64_t channels = op.attr<int32_t>("dim_t");
  auto state = std::make_shared<MatchState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const rows, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const others, needed(ctx, y, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const weights, needed(ctx, w, "W"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const MatchSizes s,
                              sizes_of_match(ctx, *rows, *others, *weights, channels));
    if (d->numel() != s.matches() || d->dtype() != rows->dtype())
      return ctx.error("Out@GRAD must have {} elements, found {}", s.matches(), describe(*d));
    MatchGradients g;
    MILLRACE_ASSIGN_OR_RETURN(g.dx, result_like(ctx, dx, *rows));
    MILLRACE_ASSIGN_OR_RETURN(g.dy, result_like(ctx, dy, *others));
    MILLRACE_ASSIGN_OR_RETURN(g.dw, result_like(ctx, dw, *weights));
    return dispatch<FloatTypes>(rows->dtype(), [&](auto tag) {
      return run_match_grad<typename decltype(tag)::type>(ctx, s, *rows, *others, *weights, *d, g,
                                                          *state);
    });
  });
}

}  // namespace
}  // namespace match_matrix

void add_feature_match_matrix(KernelRegistry& registry) {
  using namespace match_matrix;
  registry.add("match_matrix_tensor", match_matrix_tensor);
  registry.add("match_matrix_tensor_grad", match_matrix_tensor_grad);
}

}  // namespace millrace::kernels
