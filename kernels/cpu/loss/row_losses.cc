#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/labels.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/scalar.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Losses with one value per row.
namespace millrace::kernels {
namespace {

Status check_size(const KernelContext& ctx, const Tensor& tensor, const char* slot, int64_t count,
                  const Tensor& like) {
  if (tensor.numel() == count && tensor.dtype() == like.dtype()) return Ok();
  return ctx.error("{} must have {} elements of the type of {}, found {}", slot, count,
                   describe(like), describe(tensor));
}

StatusOr<Kernel> smooth_l1_loss(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex inside = op.input("InsideWeight");
  const ArgIndex outside = op.input("OutsideWeight");
  const ArgIndex diff = op.output("Diff");
  const ArgIndex out = op.output("Out");
  const double sigma = op.attr<float>("sigma");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& a = ctx.in(x);
    const int64_t rows = a.dim(0);
    const int64_t width = row_width(a);
    for (const ArgIndex other : {y, inside, outside}) {
      if (const Tensor* const t = ctx.find_in(other))
        MILLRACE_RETURN_IF_ERROR(check_size(ctx, *t, "Y and weights", a.numel(), a));
    }
    return dispatch<FloatTypes>(a.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const Tensor* const in_weight = ctx.find_in(inside);
      const Tensor* const out_weight = ctx.find_in(outside);
      const T* const wi = in_weight == nullptr ? nullptr : in_weight->data<T>();
      const T* const wo = out_weight == nullptr ? nullptr : out_weight->data<T>();
      const T* const p = a.data<T>();
      const T* const q = ctx.in(y).data<T>();
      const T square = static_cast<T>(sigma * sigma);
      Tensor* const saved = ctx.find_out(diff);
      for (int64_t r = 0; r < rows; ++r) {
        T sum = 0;
        for (int64_t i = r * width; i < (r + 1) * width; ++i) {
          const T d = (p[i] - q[i]) * (wi == nullptr ? T(1) : wi[i]);
          const T size = std::abs(d);
          const T e = size < 1 / square ? T(0.5) * square * d * d : size - T(0.5) / square;
          sum += e * (wo == nullptr ? T(1) : wo[i]);
          if (saved != nullptr) saved->data<T>()[i] = d;
        }
        ctx.out(out).data<T>()[r] = sum;
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> smooth_l1_loss_grad(const KernelSetup& op) {
  const ArgIndex diff = op.input("Diff");
  const ArgIndex inside = op.input("InsideWeight");
  const ArgIndex outside = op.input("OutsideWeight");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const ArgIndex dy = op.output("Y@GRAD");
  const double sigma = op.attr<float>("sigma");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, diff, "Diff"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const g, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(check_size(ctx, *g, "Out@GRAD", d->dim(0), *d));
    for (const ArgIndex other : {inside, outside}) {
      if (const Tensor* const t = ctx.find_in(other))
        MILLRACE_RETURN_IF_ERROR(check_size(ctx, *t, "weights", d->numel(), *d));
    }
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_x, result_like(ctx, dx, *d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_y, result_like(ctx, dy, *d));
    return dispatch<FloatTypes>(d->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const Tensor* const in_weight = ctx.find_in(inside);
      const Tensor* const out_weight = ctx.find_in(outside);
      const int64_t width = row_width(*d);
      const T square = static_cast<T>(sigma * sigma);
      for (int64_t i = 0; i < d->numel(); ++i) {
        const T v = d->data<T>()[i];
        T slope = std::abs(v) < 1 / square ? square * v : std::copysign(T(1), v);
        slope *= g->data<T>()[i / width];
        if (in_weight != nullptr) slope *= in_weight->data<T>()[i];
        if (out_weight != nullptr) slope *= out_weight->data<T>()[i];
        if (to_x != nullptr) to_x->data<T>()[i] = slope;
        if (to_y != nullptr) to_y->data<T>()[i] = -slope;
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> squared_l2_distance(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex difference = op.output("sub_result");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& a = ctx.in(x);
    const Tensor& b = ctx.in(y);
    const int64_t width = row_width(a);
    const bool one_row = b.rank() > 0 && b.dim(0) == 1;
    MILLRACE_RETURN_IF_ERROR(check_size(ctx, b, "Y", one_row ? width : a.numel(), a));
    return dispatch<FloatTypes>(a.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      Tensor* const saved = ctx.find_out(difference);
      for (int64_t r = 0; r < a.dim(0); ++r) {
        const T* const p = a.data<T>() + r * width;
        const T* const q = b.data<T>() + (one_row ? 0 : r * width);
        ctx.out(out).data<T>()[r] =
            lane_sum<T>(width, [&](int64_t i) { return (p[i] - q[i]) * (p[i] - q[i]); });
        if (saved == nullptr) continue;
        T* const d = saved->data<T>() + r * width;
        for (int64_t i = 0; i < width; ++i) d[i] = p[i] - q[i];
      }
      return Ok();
    });
  });
}

template <typename T>
void distance_slopes(const Tensor& x, const Tensor& y, const Tensor& dout, Tensor* dx, Tensor* dy) {
  const int64_t width = row_width(x);
  const bool one_row = y.dim(0) == 1;
  if (dy != nullptr) std::fill_n(dy->data<T>(), dy->numel(), T(0));
  for (int64_t r = 0; r < x.dim(0); ++r) {
    const T* const p = x.data<T>() + r * width;
    const T* const q = y.data<T>() + (one_row ? 0 : r * width);
    const T scale = 2 * dout.data<T>()[r];
    T* const to_x = dx == nullptr ? nullptr : dx->data<T>() + r * width;
    T* const to_y = dy == nullptr ? nullptr : dy->data<T>() + (one_row ? 0 : r * width);
    for (int64_t i = 0; i < width; ++i) {
      const T slope = scale * (p[i] - q[i]);
      if (to_x != nullptr) to_x[i] = slope;
      if (to_y != nullptr) to_y[i] -= slope;
    }
  }
}

StatusOr<Kernel> squared_l2_distance_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const ArgIndex dy = op.output("Y@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed(ctx, y, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const g, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(check_size(ctx, *g, "Out@GRAD", a->dim(0), *a));
    const bool one_row = b->rank() > 0 && b->dim(0) == 1;
    MILLRACE_RETURN_IF_ERROR(check_size(ctx, *b, "Y", one_row ? row_width(*a) : a->numel(), *a));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_x, result_like(ctx, dx, *a));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_y, result_like(ctx, dy, *b));
    return dispatch<FloatTypes>(a->dtype(), [&](auto tag) -> Status {
      distance_slopes<typename decltype(tag)::type>(*a, *b, *g, to_x, to_y);
      return Ok();
    });
  });
}

// Moves each center towards the mean of its class: the sum of differences divided by one more than
// the number of examples.
template <typename T>
void move_centers(const Tensor& difference, const int64_t* labels, double rate, Tensor& centers) {
  const int64_t width = centers.dim(1);
  const int64_t rows = difference.dim(0);
  std::vector<T> sums(static_cast<size_t>(centers.numel()));
  std::vector<int64_t> counts(static_cast<size_t>(centers.dim(0)), 1);
  for (int64_t r = 0; r < rows; ++r) {
    const T* const d = difference.data<T>() + r * width;
    T* const sum = sums.data() + labels[r] * width;
    for (int64_t i = 0; i < width; ++i) sum[i] += d[i];
    ++counts[static_cast<size_t>(labels[r])];
  }
  for (int64_t c = 0; c < centers.dim(0); ++c) {
    const T scale = static_cast<T>(rate) / static_cast<T>(counts[static_cast<size_t>(c)]);
    T* const center = centers.data<T>() + c * width;
    const T* const sum = sums.data() + c * width;
    for (int64_t i = 0; i < width; ++i) center[i] += scale * sum[i];
  }
}

struct CenterSlots {
  ArgIndex x;
  ArgIndex label;
  ArgIndex centers;
  ArgIndex rate;
  ArgIndex difference;
  ArgIndex loss;
  ArgIndex centers_out;
};

Status run_center_loss(const KernelContext& ctx, const CenterSlots& slots, bool update) {
  const Tensor& x = ctx.in(slots.x);
  const Tensor& centers = ctx.in(slots.centers);
  const int64_t rows = x.dim(0);
  const int64_t width = row_width(x);
  if (centers.dim(1) != width || centers.dtype() != x.dtype())
    return ctx.error("Centers must have {} columns for X {}, found {}", width, describe(x),
                     describe(centers));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const labels,
                            class_labels(ctx, ctx.in(slots.label), rows, centers.dim(0), 0, 0));
  MILLRACE_ASSIGN_OR_RETURN(const double rate,
                            first_number(ctx.in(slots.rate), "CenterUpdateRate"));
  Tensor& moved = ctx.out(slots.centers_out);
  if (!moved.shares_memory_with(centers)) MILLRACE_RETURN_IF_ERROR(moved.copy_from(centers));
  return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    Tensor& saved = ctx.out(slots.difference);
    for (int64_t r = 0; r < rows; ++r) {
      const T* const p = x.data<T>() + r * width;
      const T* const c = moved.data<T>() + labels[r] * width;
      T* const d = saved.data<T>() + r * width;
      for (int64_t i = 0; i < width; ++i) d[i] = p[i] - c[i];
      ctx.out(slots.loss).data<T>()[r] =
          lane_sum<T>(width, [&](int64_t i) { return d[i] * d[i]; }) / 2;
    }
    if (update) move_centers<T>(saved, labels, rate, moved);
    return Ok();
  });
}

StatusOr<Kernel> center_loss(const KernelSetup& op) {
  const CenterSlots slots{op.input("X"),
                          op.input("Label"),
                          op.input("Centers"),
                          op.input("CenterUpdateRate"),
                          op.output("SampleCenterDiff"),
                          op.output("Loss"),
                          op.output("CentersOut")};
  const bool update = op.attr<bool>("need_update");
  if (!slots.difference) return op.error("SampleCenterDiff is missing");
  return Kernel(
      [=](const KernelContext& ctx) -> Status { return run_center_loss(ctx, slots, update); });
}

StatusOr<Kernel> center_loss_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex difference = op.input("SampleCenterDiff");
  const ArgIndex dloss = op.input("Loss@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, difference, "SampleCenterDiff"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const g, needed(ctx, dloss, "Loss@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, x, "X"));
    MILLRACE_RETURN_IF_ERROR(check_size(ctx, *d, "SampleCenterDiff", from->numel(), *from));
    MILLRACE_RETURN_IF_ERROR(check_size(ctx, *g, "Loss@GRAD", from->dim(0), *from));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *from));
    return dispatch<FloatTypes>(from->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const int64_t width = row_width(*from);
      for (int64_t i = 0; i < from->numel(); ++i)
        to->data<T>()[i] = d->data<T>()[i] * g->data<T>()[i / width];
      return Ok();
    });
  });
}

}  // namespace

void add_loss_row_losses(KernelRegistry& registry) {
  registry.add("smooth_l1_loss", smooth_l1_loss);
  registry.add("smooth_l1_loss_grad", smooth_l1_loss_grad);
  registry.add("squared_l2_distance", squared_l2_distance);
  registry.add("squared_l2_distance_grad", squared_l2_distance_grad);
  registry.add("center_loss", center_loss);
  registry.add("center_loss_grad", center_loss_grad);
}

}  // namespace millrace::kernels
