#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/cpu/vision/rois.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct MovedPoolSettings {
  RoiAttrs roi;
  ArgIndex trans;
  bool still = false;  // cells do not move
  int64_t channels = 1;
  std::array<int64_t, 2> group{};
  std::array<int64_t, 2> part{};
  int64_t samples = 1;
  float reach = 0;  // offsets are multiplied by this fraction of the region's size
};

StatusOr<MovedPoolSettings> read_moved_pool(const KernelSetup& op) {
  MovedPoolSettings s;
  s.roi.pooled_height = op.attr<int64_t>("pooled_height");
  s.roi.pooled_width = op.attr<int64_t>("pooled_width");
  s.roi.scale = op.attr<float>("spatial_scale");
  s.roi.x = op.input("Input");
  s.roi.rois = op.input("ROIs");
  s.roi.x_slot = "Input";
  s.trans = op.input("Trans");
  s.still = op.attr<bool>("no_trans");
  s.channels = op.attr<int64_t>("output_dim");
  s.samples = op.attr<int64_t>("sample_per_part");
  s.reach = op.attr<float>("trans_std");
  const auto group = op.attr<std::vector<int64_t>>("group_size");
  const auto part = op.attr<std::vector<int64_t>>("part_size");
  if (group.size() != 2 || part.size() != 2 || group[0] < 1 || group[1] < 1 || part[0] < 1 ||
      part[1] < 1)
    return op.error("attributes 'group_size' and 'part_size' must be a height and a width each");
  std::copy_n(group.begin(), 2, s.group.begin());
  std::copy_n(part.begin(), 2, s.part.begin());
  return s;
}

struct MovedPool {
  const MovedPoolSettings& s;
  RoiPlan plan;
  const Tensor* input;
  const Tensor* rois;
  const Tensor* trans;  // null: cells do not move
  int64_t movers = 1;   // groups of output channels that share their offsets

  [[nodiscard]] int64_t regions() const { return static_cast<int64_t>(plan.image.size()); }
  [[nodiscard]] int64_t cells() const { return s.roi.pooled_height * s.roi.pooled_width; }
};

StatusOr<MovedPool> plan_moved_pool(const KernelContext& ctx, const MovedPoolSettings& s) {
  MILLRACE_ASSIGN_OR_RETURN(RoiPlan plan, plan_rois(ctx, s.roi));
  MovedPool p{s, std::move(plan), ctx.find_in(s.roi.x), ctx.find_in(s.roi.rois), nullptr, 1};
  if (p.plan.channels != s.channels * s.group[0] * s.group[1]) {
    return ctx.error("Input must have {} channels, found {}", s.channels * s.group[0] * s.group[1],
                     describe(*p.input));
  }
  if (s.still) return p;
  MILLRACE_ASSIGN_OR_RETURN(p.trans, needed(ctx, s.trans, "Trans"));
  p.movers = p.trans->rank() == 4 ? p.trans->dim(1) / 2 : 0;
  const Dims wanted = {p.regions(), 2 * p.movers, s.part[0], s.part[1]};
  if (p.movers >= 1 && p.movers <= s.channels && s.channels % p.movers == 0 &&
      p.trans->dims() == llvm::ArrayRef<int64_t>(wanted) && p.trans->dtype() == p.input->dtype())
    return p;
  return ctx.error("Trans must be [{}, 2 * n, {}, {}] with an n that divides {}, found {}",
                   p.regions(), s.part[0], s.part[1], s.channels, describe(*p.trans));
}

// One cell of a region in one output channel.
template <typename T>
struct MovedCell {
  T top, left;  // first sampling point
  T step_down, step_right;
  T height, width;            // size of the region
  int64_t plane;              // index of the plane's first pixel in Input
  int64_t down_at, right_at;  // indices of elements of Trans

  MovedCell(const MovedPool& p, int64_t region, int64_t channel, int64_t cell) {
    const MovedPoolSettings& s = p.s;
    const T* const roi = p.rois->data<T>() + 4 * region;
    const T scale = static_cast<T>(s.roi.scale);
    const T half = static_cast<T>(0.5);
    left = std::round(roi[0]) * scale - half;
    top = std::round(roi[1]) * scale - half;
    const T least = static_cast<T>(0.1);
    width = std::max((std::round(roi[2]) + 1) * scale - half - left, least);
    height = std::max((std::round(roi[3]) + 1) * scale - half - top, least);
    const int64_t row = cell / s.roi.pooled_width;
    const int64_t column = cell % s.roi.pooled_width;
    const T rows = static_cast<T>(s.roi.pooled_height);
    const T columns = static_cast<T>(s.roi.pooled_width);
    const T cell_height = height / rows;
    const T cell_width = width / columns;
    step_down = cell_height / static_cast<T>(s.samples);
    step_right = cell_width / static_cast<T>(s.samples);
    top += static_cast<T>(row) * cell_height;
    left += static_cast<T>(column) * cell_width;
    // in floating point, as in the original
    const auto part_row =
        static_cast<int64_t>(static_cast<T>(row) / rows * static_cast<T>(s.part[0]));
    const auto part_column =
        static_cast<int64_t>(static_cast<T>(column) / columns * static_cast<T>(s.part[1]));
    const int64_t mover = region * p.movers + channel / (s.channels / p.movers);
    right_at = (2 * mover * s.part[0] + part_row) * s.part[1] + part_column;
    down_at = right_at + s.part[0] * s.part[1];
    if (p.trans != nullptr) {
      left += p.trans->data<T>()[right_at] * static_cast<T>(s.reach) * width;
      top += p.trans->data<T>()[down_at] * static_cast<T>(s.reach) * height;
    }
    const int64_t group =
        (channel * s.group[0] + row * s.group[0] / s.roi.pooled_height) * s.group[1] +
        column * s.group[1] / s.roi.pooled_width;
    plane = (p.plan.image[static_cast<size_t>(region)] * p.plan.channels + group) * p.plan.pixels();
  }
};

// A point between four pixels of a plane: top left, top right, bottom left, bottom right.
template <typename T>
struct MovedPoint {
  std::array<int64_t, 4> at;
  T down, right;

  [[nodiscard]] std::array<T, 4> weights() const {
    return {(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right};
  }
};

// Calls body(point) for the points of a cell that are inside the image. Returns their number.
template <typename T, typename Body>
int64_t for_moved_points(const MovedPool& p, const MovedCell<T>& cell, Body&& body) {
  const T half = static_cast<T>(0.5);
  const T bottom = static_cast<T>(p.plan.height);
  const T end = static_cast<T>(p.plan.width);
  int64_t count = 0;
  for (int64_t i = 0; i < p.s.samples; ++i) {
    for (int64_t k = 0; k < p.s.samples; ++k) {
      T x = cell.left + static_cast<T>(k) * cell.step_right;
      T y = cell.top + static_cast<T>(i) * cell.step_down;
      if (!(x >= -half && x <= end - half && y >= -half && y <= bottom - half)) continue;
      x = std::min(std::max(x, T{0}), end - 1);
      y = std::min(std::max(y, T{0}), bottom - 1);
      const auto left = static_cast<int64_t>(x);
      const auto top = static_cast<int64_t>(y);
      // on a pixel the slope is 0, and so it is where the point was clamped to the border
      const int64_t right = x > static_cast<T>(left) ? left + 1 : left;
      const int64_t below = y > static_cast<T>(top) ? top + 1 : top;
      ++count;
      body(MovedPoint<T>{{top * p.plan.width + left, top * p.plan.width + right,
                          below * p.plan.width + left, below * p.plan.width + right},
                         y - static_cast<T>(top),
                         x - static_cast<T>(left)});
    }
  }
  return count;
}

template <typename T>
void pool_moved(const MovedPool& p, int64_t begin, int64_t end, T* out, T* counts) {
  const T* const input = p.input->data<T>();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t channel = i / p.cells() % p.s.channels;
    const MovedCell<T> cell(p, i / p.cells() / p.s.channels, channel, i % p.cells());
    T sum = 0;
    const int64_t count = for_moved_points(p, cell, [&](const MovedPoint<T>& point) {
      const std::array<T, 4> weights = point.weights();
      for (size_t k = 0; k < 4; ++k) sum += weights[k] * input[cell.plane + point.at[k]];
    });
    out[i] = count == 0 ? T{0} : sum / static_cast<T>(count);
    if (counts != nullptr) counts[i] = static_cast<T>(count);
  }
}

StatusOr<Kernel> deformable_psroi_pooling(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const MovedPoolSettings s, read_moved_pool(op));
  const ArgIndex output = op.output("Output");
  const ArgIndex top_count = op.output("TopCount");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const MovedPool p, plan_moved_pool(ctx, s));
    Tensor& out = ctx.out(output);
    Tensor* const counts = ctx.find_out(top_count);
    const Dims dims = {p.regions(), s.channels, s.roi.pooled_height, s.roi.pooled_width};
    MILLRACE_RETURN_IF_ERROR(out.resize(p.input->dtype(), dims));
    if (counts != nullptr) MILLRACE_RETURN_IF_ERROR(counts->resize(p.input->dtype(), dims));
    return dispatch<FloatTypes>(p.input->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* const to = out.data<T>();
      T* const numbers = counts == nullptr ? nullptr : counts->data<T>();
      ctx.device().parallel_for(out.numel(), 256, [&](int64_t begin, int64_t end) {
        pool_moved(p, begin, end, to, numbers);
      });
      return Ok();
    });
  });
}

template <typename T>
void pool_moved_back(const MovedPool& p, const T* dout, T* dinput, T* dtrans) {
  const T* const input = p.input->data<T>();
  const int64_t total = p.regions() * p.s.channels * p.cells();
  for (int64_t i = 0; i < total; ++i) {
    const int64_t channel = i / p.cells() % p.s.channels;
    const MovedCell<T> cell(p, i / p.cells() / p.s.channels, channel, i % p.cells());
    const int64_t count = for_moved_points(p, cell, [](const MovedPoint<T>&) {});
    if (count == 0) continue;
    const T g = dout[i] / static_cast<T>(count);
    for_moved_points(p, cell, [&](const MovedPoint<T>& point) {
      if (dinput != nullptr) {
        const std::array<T, 4> weights = point.weights();
        for (size_t k = 0; k < 4; ++k) dinput[cell.plane + point.at[k]] += g * weights[k];
      }
      if (dtrans == nullptr || p.trans == nullptr) return;
      std::array<T, 4> v;
      for (size_t k = 0; k < 4; ++k) v[k] = input[cell.plane + point.at[k]];
      const T across = (1 - point.down) * (v[1] - v[0]) + point.down * (v[3] - v[2]);
      const T along = (1 - point.right) * (v[2] - v[0]) + point.right * (v[3] - v[1]);
      const T reach = static_cast<T>(p.s.reach);
      dtrans[cell.right_at] += g * across * reach * cell.width;
      dtrans[cell.down_at] += g * along * reach * cell.height;
    });
  }
}

StatusOr<Kernel> deformable_psroi_pooling_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const MovedPoolSettings s, read_moved_pool(op));
  const ArgIndex out_grad = op.input("Output@GRAD");
  const ArgIndex input_grad = op.output("Input@GRAD");
  const ArgIndex trans_grad = op.output("Trans@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const MovedPool p, plan_moved_pool(ctx, s));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dinput, result_like(ctx, input_grad, *p.input));
    Tensor* dtrans = nullptr;
    if (trans_grad) {
      MILLRACE_ASSIGN_OR_RETURN(const Tensor* const trans, needed(ctx, s.trans, "Trans"));
      MILLRACE_ASSIGN_OR_RETURN(dtrans, result_like(ctx, trans_grad, *trans));
    }
    for (Tensor* const tensor : {dinput, dtrans}) {
      if (tensor != nullptr) fill_zero(*tensor);
    }
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dout, needed(ctx, out_grad, "Output@GRAD"));
    if (dout->dtype() != p.input->dtype() ||
        dout->numel() != p.regions() * s.channels * p.cells()) {
      return ctx.error("Output@GRAD must be [{}, {}, {}, {}], found {}", p.regions(), s.channels,
                       s.roi.pooled_height, s.roi.pooled_width, describe(*dout));
    }
    return dispatch<FloatTypes>(dout->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      pool_moved_back(p, dout->data<T>(), dinput == nullptr ? nullptr : dinput->data<T>(),
                      dtrans == nullptr ? nullptr : dtrans->data<T>());
      return Ok();
    });
  });
}

}  // namespace

void add_vision_deformable_psroi_pooling(KernelRegistry& registry) {
  registry.add("deformable_psroi_pooling", deformable_psroi_pooling);
  registry.add("deformable_psroi_pooling_grad", deformable_psroi_pooling_grad);
}

}  // namespace millrace::kernels
