#include <algorithm>
#include <array>
#include <memory>

#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/wide_loops.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// Heads are processed one by one, so that the scores of a head stay in the cache between the
// product that computes them and the one that uses them. No tensor is transposed: rows of a head
// are heads * width elements apart.
namespace millrace::kernels {
namespace attention_kernels {
namespace {

struct AttentionSizes {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t width = 0;    // elements of a row of Q and K in one head
  int64_t v_width = 0;  // the same for V

  [[nodiscard]] int64_t count() const { return batch * heads; }
  [[nodiscard]] int64_t scores() const { return rows * columns; }
  [[nodiscard]] int64_t q_stride() const { return heads * width; }
  [[nodiscard]] int64_t v_stride() const { return heads * v_width; }
  // Offset of the matrix of a head in a tensor with that many rows.
  [[nodiscard]] int64_t offset(int64_t head, int64_t matrix_rows, int64_t head_width) const {
    return (head / heads * matrix_rows * heads + head % heads) * head_width;
  }
};

StatusOr<AttentionSizes> sizes_of(const Tensor& q, const Tensor& k, const Tensor& v,
                                  int64_t heads) {
  const bool fits = q.rank() == 3 && k.rank() == 3 && v.rank() == 3 && q.dim(0) == k.dim(0) &&
                    q.dim(2) == k.dim(2) && k.dim(0) == v.dim(0) && k.dim(1) == v.dim(1) &&
                    q.dim(2) % heads == 0 && v.dim(2) % heads == 0 && q.dtype() == k.dtype() &&
                    q.dtype() == v.dtype();
  if (!fits) {
    return KernelContext::error("Q {}, K {} and V {} do not fit {} heads", describe(q), describe(k),
                                describe(v), heads);
  }
  return AttentionSizes{q.dim(0), heads, q.dim(1), k.dim(1), q.dim(2) / heads, v.dim(2) / heads};
}

using dnn::multiply;
// Doubles, which are used for comparison only, do not use a library.
Status multiply(const dnn::SmallProduct& p, const double* a, const double* b, double* c) {
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t j = 0; j < p.columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < p.inner; ++k) {
        sum += a[p.a_transposed ? k * p.a_stride + i : i * p.a_stride + k] *
               b[p.b_transposed ? j * p.b_stride + k : k * p.b_stride + j];
      }
      c[i * p.c_stride + j] = static_cast<double>(p.alpha) * sum;
    }
  }
  return Ok();
}

// Floats use the wide loops if the processor has them.
void softmax_row(float* x, const float* mask, bool mask_advances, int64_t count) {
  const WideLoops* const wide = wide_loops();
  wide != nullptr ? wide->masked_softmax(x, mask, mask_advances, count)
                  : masked_softmax(x, mask, mask_advances, count);
}
void softmax_row(double* x, const double* mask, bool mask_advances, int64_t count) {
  masked_softmax(x, mask, mask_advances, count);
}
void softmax_grad_row(const float* p, float* dp, int64_t count) {
  const WideLoops* const wide = wide_loops();
  wide != nullptr ? wide->softmax_gradient(p, dp, count) : softmax_gradient(p, dp, count);
}
void softmax_grad_row(const double* p, double* dp, int64_t count) {
  softmax_gradient(p, dp, count);
}

// The mask added to the scores: strides in elements per dim, 0 where it repeats.
struct Mask {
  const Tensor* tensor = nullptr;
  std::array<int64_t, 4> stride = {};

  template <typename T>
  [[nodiscard]] const T* row(const AttentionSizes& s, int64_t head, int64_t row) const {
    if (tensor == nullptr) return nullptr;
    return tensor->data<T>() + head / s.heads * stride[0] + head % s.heads * stride[1] +
           row * stride[2];
  }
};

StatusOr<Mask> mask_of(const Tensor* tensor, const AttentionSizes& s, DType dtype) {
  Mask mask{tensor, {}};
  if (tensor == nullptr) return mask;
  const std::array<int64_t, 4> dims = {s.batch, s.heads, s.rows, s.columns};
  bool fits = tensor->rank() == 4 && tensor->dtype() == dtype;
  int64_t stride = 1;
  for (size_t i = 4; fits && i-- > 0;) {
    fits = tensor->dim(i) == 1 || tensor->dim(i) == dims[i];
    mask.stride[i] = tensor->dim(i) == 1 ? 0 : stride;
    stride *= tensor->dim(i);
  }
  if (!fits) {
    return KernelContext::error("Mask {} cannot be broadcast to [{}, {}, {}, {}]",
                                describe(*tensor), s.batch, s.heads, s.rows, s.columns);
  }
  return mask;
}

// Calls body(head, scratch) for every head, with scratch memory of that many elements per thread.
// Each thread stops at its first error.
template <typename T, typename Body>
Status each_head(CpuDevice& device, const AttentionSizes& s, int64_t scratch_elements,
                 Body&& body) {
  const int64_t parts = std::min<int64_t>(device.threads(), s.count());
  MILLRACE_ASSIGN_OR_RETURN(
      std::byte* const memory,
      device.scratch(static_cast<size_t>(parts * scratch_elements) * sizeof(T)));
  std::vector<Status> statuses(static_cast<size_t>(parts));
  device.parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      T* const scratch = reinterpret_cast<T*>(memory) + part * scratch_elements;
      Status& status = statuses[static_cast<size_t>(part)];
      const int64_t last = s.count() * (part + 1) / parts;
      for (int64_t head = s.count() * part / parts; head < last && status.ok(); ++head)
        status = body(head, scratch);
    }
  });
  for (Status& status : statuses) MILLRACE_RETURN_IF_ERROR(std::move(status));
  return Ok();
}

struct AttentionForward {
  ArgIndex q, k, v, mask, out, probs;
  int64_t heads;
  float scale;
};

// Matrices of the forward op; probs may be null.
template <typename T>
struct AttentionOperands {
  const T* q;
  const T* k;
  const T* v;
  T* out;
  T* probs;
};

template <typename T>
Status attend(CpuDevice& device, const AttentionOperands<T>& o, float scale,
              const AttentionSizes& s, const Mask& mask) {
  const dnn::SmallProduct scores{s.rows,       s.columns,    s.width,   false, true,
                                 s.q_stride(), s.q_stride(), s.columns, scale};
  const dnn::SmallProduct values{s.rows,    s.v_width,    s.columns,    false, false,
                                 s.columns, s.v_stride(), s.v_stride(), 1.0F};
  return each_head<T>(
      device, s, o.probs == nullptr ? s.scores() : 0, [&](int64_t head, T* scratch) -> Status {
        T* const p = o.probs == nullptr ? scratch : o.probs + head * s.scores();
        MILLRACE_RETURN_IF_ERROR(multiply(scores, o.q + s.offset(head, s.rows, s.width),
                                          o.k + s.offset(head, s.columns, s.width), p));
        for (int64_t r = 0; r < s.rows; ++r)
          softmax_row(p + r * s.columns, mask.row<T>(s, head, r), mask.stride[3] != 0, s.columns);
        return multiply(values, p, o.v + s.offset(head, s.columns, s.v_width),
                        o.out + s.offset(head, s.rows, s.v_width));
      });
}

template <typename T>
Status run_forward(const KernelContext& ctx, const AttentionForward& args, const AttentionSizes& s,
                   const Mask& mask) {
  Tensor* const kept = ctx.find_out(args.probs);
  const AttentionOperands<T> o{ctx.in(args.q).data<T>(), ctx.in(args.k).data<T>(),
                               ctx.in(args.v).data<T>(), ctx.out(args.out).data<T>(),
                               kept == nullptr ? nullptr : kept->data<T>()};
  return attend(ctx.device(), o, args.scale, s, mask);
}

StatusOr<Kernel> attention(const KernelSetup& op) {
  const AttentionForward args{op.input("Q"),
                              op.input("K"),
                              op.input("V"),
                              op.input("Mask"),
                              op.output("Out"),
                              op.output("Probs"),
                              op.attr<int32_t>("heads"),
                              op.attr<float>("scale")};
  return Kernel([args](const KernelContext& ctx) -> Status {
    const Tensor& q = ctx.in(args.q);
    MILLRACE_ASSIGN_OR_RETURN(const AttentionSizes s,
                              sizes_of(q, ctx.in(args.k), ctx.in(args.v), args.heads));
    MILLRACE_ASSIGN_OR_RETURN(const Mask mask, mask_of(ctx.find_in(args.mask), s, q.dtype()));
    Tensor& out = ctx.out(args.out);
    if (out.numel() == 0) return Ok();
    if (s.columns == 0 || s.width == 0)
      return ctx.error("Q {} and K {} must have no empty dims", describe(q),
                       describe(ctx.in(args.k)));
    return dispatch<FloatTypes>(q.dtype(), [&](auto tag) {
      return run_forward<typename decltype(tag)::type>(ctx, args, s, mask);
    });
  });
}

struct AttentionBackward {
  ArgIndex q, k, v, probs, dout, dq, dk, dv;
  int64_t heads;
  float scale;
};

template <typename T>
Status run_backward(const KernelContext& ctx, const AttentionBackward& args,
                    const AttentionSizes& s) {
  const T* const q = ctx.in(args.q).data<T>();
  const T* const k = ctx.in(args.k).data<T>();
  const T* const v = ctx.in(args.v).data<T>();
  const T* const probs = ctx.in(args.probs).data<T>();
  const T* const dout = ctx.in(args.dout).data<T>();
  const auto data = [&](ArgIndex arg) {
    Tensor* const tensor = ctx.find_out(arg);
    return tensor == nullptr ? nullptr : tensor->data<T>();
  };
  T* const dq = data(args.dq);
  T* const dk = data(args.dk);
  T* const dv = data(args.dv);
  const dnn::SmallProduct to_dv{s.columns, s.v_width,    s.rows,       true, false,
                                s.columns, s.v_stride(), s.v_stride(), 1.0F};
  const dnn::SmallProduct to_dp{s.rows,       s.columns,    s.v_width, false, true,
                                s.v_stride(), s.v_stride(), s.columns, 1.0F};
  const dnn::SmallProduct to_dq{s.rows,    s.width,      s.columns,    false,     false,
                                s.columns, s.q_stride(), s.q_stride(), args.scale};
  const dnn::SmallProduct to_dk{s.columns, s.width,      s.rows,       true,      false,
                                s.columns, s.q_stride(), s.q_stride(), args.scale};
  return each_head<T>(ctx.device(), s, s.scores(), [&](int64_t head, T* dp) -> Status {
    const T* const p = probs + head * s.scores();
    const int64_t at_q = s.offset(head, s.rows, s.width);
    const int64_t at_k = s.offset(head, s.columns, s.width);
    const int64_t at_v = s.offset(head, s.columns, s.v_width);
    const int64_t at_out = s.offset(head, s.rows, s.v_width);
    if (dv != nullptr) MILLRACE_RETURN_IF_ERROR(multiply(to_dv, p, dout + at_out, dv + at_v));
    if (dq == nullptr && dk == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(multiply(to_dp, dout + at_out, v + at_v, dp));
    for (int64_t r = 0; r < s.rows; ++r)
      softmax_grad_row(p + r * s.columns, dp + r * s.columns, s.columns);
    if (dq != nullptr) MILLRACE_RETURN_IF_ERROR(multiply(to_dq, dp, k + at_k, dq + at_q));
    return dk == nullptr ? Ok() : multiply(to_dk, dp, q + at_q, dk + at_k);
  });
}

StatusOr<Kernel> attention_grad(const KernelSetup& op) {
  const AttentionBackward args{
      op.input("Q"),          op.input("K"),        op.input("V"),
      op.input("Probs"),      op.input("Out@GRAD"), op.output("Q@GRAD"),
      op.output("K@GRAD"),    op.output("V@GRAD"),  op.attr<int32_t>("heads"),
      op.attr<float>("scale")};
  if (!args.q || !args.k || !args.v || !args.probs || !args.dout)
    return op.error("expected inputs Q, K, V, Probs and Out@GRAD");
  return Kernel([args](const KernelContext& ctx) -> Status {
    const Tensor& q = ctx.in(args.q);
    const Tensor& probs = ctx.in(args.probs);
    const Tensor& dout = ctx.in(args.dout);
    MILLRACE_ASSIGN_OR_RETURN(const AttentionSizes s,
                              sizes_of(q, ctx.in(args.k), ctx.in(args.v), args.heads));
    if (probs.numel() != s.count() * s.scores() || probs.dtype() != q.dtype() ||
        dout.numel() != s.count() * s.rows * s.v_width || dout.dtype() != q.dtype()) {
      return ctx.error("Probs {} and Out@GRAD {} do not match Q {}", describe(probs),
                       describe(dout), describe(q));
    }
    if (s.count() == 0 || s.scores() == 0 || s.width == 0 || s.v_width == 0) {
      for (const ArgIndex arg : {args.dq, args.dk, args.dv}) {
        if (Tensor* const out = ctx.find_out(arg))
          std::fill_n(out->raw(), out->bytes(), std::byte{});
      }
      return Ok();
    }
    return dispatch<FloatTypes>(q.dtype(), [&](auto tag) {
      return run_backward<typename decltype(tag)::type>(ctx, args, s);
    });
  });
}

struct MultiheadSlots {
  ArgIndex x, w, bias, mask, out;
};

// Projection number `part` of Input: Q, K or V.
template <typename T>
Status project_part(const KernelContext& ctx, Gemm& gemm, const MultiheadSlots& slots, int64_t part,
                    int64_t width, T* to) {
  const Tensor& x = ctx.in(slots.x);
  const int64_t rows = x.dim(0) * x.dim(1);
  MILLRACE_RETURN_IF_ERROR(
      gemm(ctx.device(), {.rows = rows, .columns = width, .inner = x.dim(2), .b_stride = 3 * width},
           x.data<T>(), ctx.in(slots.w).data<T>() + part * width, to));
  const T* const bias = ctx.in(slots.bias).data<T>() + part * width;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; ++c) to[r * width + c] += bias[c];
  }
  return Ok();
}

// multihead_matmul: attention including the projections of its input.
StatusOr<Kernel> multihead_matmul(const KernelSetup& op) {
  const MultiheadSlots slots{op.input("Input"), op.input("W"), op.input("Bias"), op.input("BiasQK"),
                             op.output("Out")};
  const int64_t heads = op.attr<int32_t>("head_number");
  const float scale = op.attr<float>("alpha");
  auto work = std::make_shared<Workspace>();
  auto gemm = std::make_shared<Gemm>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(slots.x);
    const Tensor& w = ctx.in(slots.w);
    const Tensor& bias = ctx.in(slots.bias);
    if (x.rank() != 3 || w.rank() < 3 || w.dim(0) != x.dim(2) || w.dim(1) != 3 || w.dim(0) == 0 ||
        w.dtype() != x.dtype() || bias.dtype() != x.dtype() ||
        bias.numel() * w.dim(0) != w.numel() || w.numel() / w.dim(0) % (3 * heads) != 0)
      return ctx.error("W {} and Bias {} do not fit Input {} and {} heads", describe(w),
                       describe(bias), describe(x), heads);
    const int64_t width = w.numel() / w.dim(0) / 3;
    const AttentionSizes s{x.dim(0), heads, x.dim(1), x.dim(1), width / heads, width / heads};
    MILLRACE_ASSIGN_OR_RETURN(const Mask mask, mask_of(ctx.find_in(slots.mask), s, x.dtype()));
    if (ctx.out(slots.out).numel() == 0) return Ok();
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      std::array<T*, 3> parts{};
      for (size_t k = 0; k < parts.size(); ++k) {
        MILLRACE_ASSIGN_OR_RETURN(parts[k], work->take<T>(k, x.dim(0) * x.dim(1) * width));
        MILLRACE_RETURN_IF_ERROR(
            project_part<T>(ctx, *gemm, slots, static_cast<int64_t>(k), width, parts[k]));
      }
      const AttentionOperands<T> o{parts[0], parts[1], parts[2],
                                   ctx.out(slots.out).template data<T>(), nullptr};
      return attend(ctx.device(), o, scale, s, mask);
    });
  });
}

}  // namespace
}  // namespace attention_kernels

/// multi_head_attention with its gradient, multihead_matmul.
void add_math_attention(KernelRegistry& registry) {
  using namespace attention_kernels;
  registry.add("multihead_matmul", multihead_matmul);
  registry.add("multi_head_attention", attention);
  registry.add("multi_head_attention_grad", attention_grad);
}

}  // namespace millrace::kernels
