#include "kernels/cpu/nn/pool_plan.h"

#include <algorithm>

namespace millrace::kernels {
namespace pool_plan {
namespace {

// Adaptive pooling: every output position gets a share of the image. Shares overlap if the number
// of positions does not divide the size.
void share_axis(PoolAxis& axis) {
  for (int64_t i = 0; i < axis.places; ++i) {
    axis.begin[static_cast<size_t>(i)] = i * axis.size / axis.places;
    axis.end[static_cast<size_t>(i)] = ((i + 1) * axis.size + axis.places - 1) / axis.places;
  }
}

// The original counts padding after the image up to the amount of padding before it.
void slide_axis(PoolAxis& axis, bool exclusive) {
  axis.whole_begin = axis.places;
  for (int64_t i = 0; i < axis.places; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t start = i * axis.stride - axis.before;
    const int64_t stop = std::min(start + axis.kernel, axis.size + axis.before);
    axis.begin[at] = std::max<int64_t>(start, 0);
    axis.end[at] = std::max(std::min(stop, axis.size), axis.begin[at]);
    if (!exclusive) axis.count[at] = stop - start;
    if (start < 0 || start + axis.kernel > axis.size) continue;
    axis.whole_begin = std::min(axis.whole_begin, i);
    axis.whole_end = i + 1;
  }
  axis.whole_begin = std::min(axis.whole_begin, axis.whole_end);
}

PoolAxis make_axis(const PoolAttrs& attrs, int64_t size, int64_t places, int64_t kernel,
                   int64_t stride, int64_t before) {
  PoolAxis axis;
  axis.size = size;
  axis.places = places;
  axis.stride = stride;
  axis.before = before;
  axis.kernel = kernel;
  axis.begin.resize(static_cast<size_t>(places));
  axis.end.resize(axis.begin.size());
  axis.count.resize(axis.begin.size(), -1);
  if (attrs.shares()) {
    share_axis(axis);
  } else {
    slide_axis(axis, attrs.exclusive);
  }
  for (size_t i = 0; i < axis.count.size(); ++i) {
    if (axis.count[i] < 0) axis.count[i] = axis.end[i] - axis.begin[i];
  }
  return axis;
}

Status misfit(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> out) {
  return KernelContext::error("X {} and Out {} of a pooling do not match", ops::dims_text(x),
                              ops::dims_text(out));
}

// Number of output positions that the attributes imply for an input dim.
int64_t expected_places(const PoolAttrs& attrs, const ops::Window& window, size_t i, int64_t size,
                        int64_t found) {
  if (attrs.global) return attrs.adaptive ? size : 1;
  if (attrs.adaptive) return attrs.kernel[i];
  const int64_t down = ops::window_places(window, i, size);
  const int64_t up = ops::window_places(window, i, size, true);
  return found == up ? up : down;
}

}  // namespace
}  // namespace pool_plan

PoolAttrs read_pool_attrs(const KernelSetup& op) {
  PoolAttrs attrs;
  const auto has = [&](llvm::StringRef name) { return op.def().find_attr(name) != nullptr; };
  attrs.window = read_window_attrs(op);
  const auto kernel = op.attr<std::vector<int64_t>>("ksize");
  attrs.kernel.assign(kernel.begin(), kernel.end());
  attrs.max = !has("pooling_type") || op.attr<std::string>("pooling_type") == "max";
  attrs.slides = attrs.max && has("pooling_type");
  attrs.global = op.attr<bool>("global_pooling");
  attrs.adaptive = op.attr<bool>("adaptive");
  attrs.exclusive = !has("exclusive") || op.attr<bool>("exclusive");
  attrs.channels_last = has("data_format") && channels_last(op, "data_format");
  return attrs;
}

StatusOr<PoolPlan> plan_pool(const PoolAttrs& attrs, llvm::ArrayRef<int64_t> x,
                             llvm::ArrayRef<int64_t> out) {
  using namespace pool_plan;
  const size_t rank = x.size();
  if (rank < 3 || rank > 5 || out.size() != rank || x[0] != out[0] ||
      channel_count(x, attrs.channels_last) != channel_count(out, attrs.channels_last))
    return misfit(x, out);
  const auto size = spatial_dims(x, attrs.channels_last);
  const auto places = spatial_dims(out, attrs.channels_last);
  const size_t n = size.size();
  ops::Window window;
  if (attrs.shares()) {
    if (attrs.adaptive && !attrs.global && attrs.kernel.size() != n) return misfit(x, out);
    window.kernel.assign(n, 1);
    window.strides.assign(n, 1);
    window.before.assign(n, 0);
  } else {
    Dims kernel = attrs.kernel;
    if (attrs.global) kernel.assign(size.begin(), size.end());
    for (size_t i = 0; attrs.global && i < n; ++i) kernel[i] = std::max<int64_t>(kernel[i], 1);
    MILLRACE_ASSIGN_OR_RETURN(window, window_over(attrs.window, kernel, size));
    if (attrs.adaptive) window.before.assign(n, 0);
  }
  PoolPlan plan;
  plan.batch = x[0];
  plan.channels = channel_count(x, attrs.channels_last);
  plan.max = attrs.max;
  plan.channels_last = attrs.channels_last;
  plan.one_window = attrs.global && !attrs.adaptive;
  for (size_t i = 0; i < 3; ++i) {
    if (i + n < 3) {
      plan.axes[i] = make_axis(attrs, 1, 1, 1, 1, 0);
      continue;
    }
    const size_t k = i + n - 3;
    if (expected_places(attrs, window, k, size[k], places[k]) != places[k]) return misfit(x, out);
    plan.axes[i] =
        make_axis(attrs, size[k], places[k], window.kernel[k], window.strides[k], window.before[k]);
  }
  return plan;
}

}  // namespace millrace::kernels
