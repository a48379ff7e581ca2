#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cpu/nn/window.h"
#include "kernels/gpu/ops/walk.h"
#include "kernels/registry.h"

// Ops that move elements of any type: pixel_shuffle, shuffle_channel, space_to_depth and
// temporal_shift; pad and pad_constant_like.
namespace millrace::gpu {
namespace rearrange {
namespace {

using Six = std::array<int64_t, 6>;

// A tensor viewed with six dims, and the dims of another one in terms of these.
struct Order {
  Six dims;
  std::array<size_t, 6> of;  // dim i of the other tensor is dim of[i]
};

// Copies to the other order, or back from it.
Status reorder(Device& device, const Order& order, const Tensor& from, Tensor& to, bool back) {
  if (from.dtype() != to.dtype() || from.numel() != to.numel() || from.raw() == to.raw())
    return refuse("{} becomes {}", describe(from), describe(to));
  Six other{};
  for (size_t i = 0; i < 6; ++i) other[i] = order.dims[order.of[i]];
  const auto strides = row_major_strides(order.dims);
  const auto other_strides = row_major_strides(other);
  Box<2> box;
  if (!back) {
    for (size_t i = 0; i < 6; ++i) box.push(other[i], {other_strides[i], strides[order.of[i]]});
    return move_elements(device, box, to, 0, from, 0);
  }
  std::array<size_t, 6> inverse{};
  for (size_t i = 0; i < 6; ++i) inverse[order.of[i]] = i;
  for (size_t i = 0; i < 6; ++i) box.push(order.dims[i], {strides[i], other_strides[inverse[i]]});
  return move_elements(device, box, to, 0, from, 0);
}

// The order of an op, given the dims of X.
using Rule = StatusOr<Order> (*)(llvm::ArrayRef<int64_t> x, int64_t number, bool last);

// Channels [rest, factor, factor] become pixels.
StatusOr<Order> spread_channels(llvm::ArrayRef<int64_t> x, int64_t factor, bool last) {
  const int64_t square = factor * factor;
  if (x.size() != 4 || factor < 1 || x[last ? 3 : 1] % square != 0) return refuse("pixel_shuffle");
  if (last) return Order{{x[0], x[1], x[2], x[3] / square, factor, factor}, {0, 1, 4, 2, 5, 3}};
  return Order{{x[0], x[1] / square, factor, factor, x[2], x[3]}, {0, 1, 4, 2, 5, 3}};
}
StatusOr<Order> swap_groups(llvm::ArrayRef<int64_t> x, int64_t group, bool /*last*/) {
  if (x.size() != 4 || group < 1 || x[1] % group != 0) return refuse("shuffle_channel");
  return Order{{x[0], group, x[1] / group, x[2], x[3], 1}, {0, 2, 1, 3, 4, 5}};
}
// As on the CPU, the channels are [rows of a block, columns of a block, rest].
StatusOr<Order> join_blocks(llvm::ArrayRef<int64_t> x, int64_t block, bool /*last*/) {
  if (x.size() != 4 || block < 1 || x[1] % (block * block) != 0 || x[2] % block != 0 ||
      x[3] % block != 0)
    return refuse("space_to_depth");
  return Order{{x[0], block, block, x[1] / (block * block), x[2], x[3]}, {0, 3, 4, 1, 5, 2}};
}

// \param kBack   the gradient, which moves elements to where they were
// \param kAgain  the gradient moves them forward once more, as the original does
template <Rule kRule, bool kBack, bool kAgain = false>
StatusOr<Kernel> move(const KernelSetup& op) {
  const bool shuffles = op.op().type().startswith("pixel");
  const int64_t number = op.attr<int64_t>(kRule == swap_groups ? "group"
                                          : shuffles           ? "upscale_factor"
                                                               : "blocksize");
  return Kernel([&device = device_of(op), number,
                 last = shuffles && kernels::channels_last(op, "data_format"),
                 x = op.input(kBack ? "Out@GRAD" : "X"),
                 out = op.output(kBack ? "X@GRAD" : "Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor* const to = ctx.find_out(out);
    if (to == nullptr) return Ok();
    const bool back = kBack && !kAgain;
    MILLRACE_ASSIGN_OR_RETURN(const Order order, kRule((back ? *to : *from).dims(), number, last));
    return reorder(device, order, *from, *to, back);
  });
}

// One range of the channels of temporal_shift.
struct Shifted {
  int64_t begin;
  int64_t end;
  int64_t by;  // the images of a video that it comes from: -1 the one before
};

Status shift(Device& device, const Tensor& x, Tensor& to, int64_t segments, bool last,
             const Shifted& range) {
  const int64_t channels = kernels::channel_count(x.dims(), last);
  const int64_t pixels = channels == 0 ? 0 : x.numel() / (x.dim(0) * channels);
  const int64_t image = channels * pixels;
  const int64_t skipped = range.by == 0 ? 0 : 1;
  Box<2> box;
  box.push(x.dim(0) / segments, {segments * image, segments * image});
  box.push(segments - skipped, {image, image});
  box.push(last ? pixels : range.end - range.begin,
           {last ? channels : pixels, last ? channels : pixels});
  box.push(last ? range.end - range.begin : pixels, {1, 1});
  if (box.count() == 0) return Ok();
  const int64_t first = range.begin * (last ? 1 : pixels);
  return move_elements(device, box, to, first + (range.by < 0 ? image : 0), x,
                       first + (range.by > 0 ? image : 0));
}

template <bool kBack>
StatusOr<Kernel> temporal_shift(const KernelSetup& op) {
  return Kernel(
      [&device = device_of(op), x = op.input(kBack ? "Out@GRAD" : "X"),
       out = op.output(kBack ? "X@GRAD" : "Out"), segments = op.attr<int64_t>("seg_num"),
       ratio = op.attr<float>("shift_ratio"),
       last = kernels::channels_last(op, "data_format")](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
        MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *from));
        if (to == nullptr || from->numel() == 0) return Ok();
        if (from->rank() != 4 || segments < 1 || from->dim(0) % segments != 0 ||
            from->raw() == to->raw())
          return refuse("{} in segments of {}", describe(*from), segments);
        const int64_t channels = kernels::channel_count(from->dims(), last);
        const auto part = static_cast<float>(channels);
        const auto first = std::min(static_cast<int64_t>(part * ratio), channels);
        const auto second = std::min(static_cast<int64_t>(part * 2 * ratio), channels);
        MILLRACE_RETURN_IF_ERROR(clear_elements(device, *to));
        for (const Shifted& range :
             {Shifted{0, first, kBack ? 1 : -1}, Shifted{first, second, kBack ? -1 : 1},
              Shifted{second, channels, 0}})
          MILLRACE_RETURN_IF_ERROR(shift(device, *from, *to, segments, last, range));
        return Ok();
      });
}

// Copies the elements that a small tensor and a padded one share.
// \param before  padding before each dim; below 0, elements of the small tensor are left out
Status copy_shared(Device& device, const std::vector<int64_t>& before, bool into_padded,
                   const Tensor& from, Tensor& to) {
  const auto small = into_padded ? from.dims() : to.dims();
  const auto padded = into_padded ? to.dims() : from.dims();
  const auto small_strides = row_major_strides(small);
  const auto padded_strides = row_major_strides(padded);
  Box<2> box;
  int64_t small_start = 0;
  int64_t padded_start = 0;
  for (size_t i = 0; i < small.size(); ++i) {
    const int64_t begin = std::max<int64_t>(before[i], 0);
    const int64_t count = std::min(small[i] + before[i], padded[i]) - begin;
    if (count <= 0) return Ok();
    small_start += (begin - before[i]) * small_strides[i];
    padded_start += begin * padded_strides[i];
    const int64_t of_small = small_strides[i];
    const int64_t of_padded = padded_strides[i];
    box.push(count, {into_padded ? of_padded : of_small, into_padded ? of_small : of_padded});
  }
  return move_elements(device, box, to, into_padded ? padded_start : small_start, from,
                       into_padded ? small_start : padded_start);
}

// \param kGradient  the kernel of the gradient, which cuts the padding off
template <bool kGradient>
StatusOr<Kernel> pad(const KernelSetup& op) {
  const bool like = op.op().type().startswith("pad_constant_like");
  std::vector<int64_t> before;
  if (!like) {
    const auto paddings = op.attr<std::vector<int64_t>>("paddings");
    for (size_t i = 0; i + 1 < paddings.size(); i += 2) before.push_back(paddings[i]);
  }
  const char* const small = like ? (kGradient ? "Y@GRAD" : "Y") : (kGradient ? "X@GRAD" : "X");
  return Kernel([&device = device_of(op), from_arg = op.input(kGradient ? "Out@GRAD" : small),
                 to_arg = op.output(kGradient ? small : "Out"), like, before,
                 value = kGradient ? 0.0F : op.attr<float>("pad_value")](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, from_arg, "X"));
    Tensor* const to = ctx.find_out(to_arg);
    if (to == nullptr) return Ok();
    std::vector<int64_t> start = before;
    if (like) start.assign(from->rank(), 0);
    if (from->dtype() != to->dtype() || from->rank() != to->rank() ||
        start.size() != from->rank() || from->raw() == to->raw())
      return refuse("{} becomes {}", describe(*from), describe(*to));
    if (to->numel() == 0) return Ok();
    if (value != 0 && to->dtype() != DType::kFloat32) return refuse("{}", describe(*to));
    if (from->numel() != to->numel() || kGradient) {
      MILLRACE_RETURN_IF_ERROR(value == 0 ? clear_elements(device, *to)
                                          : each(device, Fill{floats(*to), value}, to->numel()));
    }
    return copy_shared(device, start, !kGradient, *from, *to);
  });
}

}  // namespace
}  // namespace rearrange

void add_rearrange(KernelRegistry& registry) {
  using namespace rearrange;
  registry.add("pixel_shuffle", move<spread_channels, false>);
  registry.add("pixel_shuffle_grad", move<spread_channels, true>);
  registry.add("shuffle_channel", move<swap_groups, false>);
  registry.add("shuffle_channel_grad", move<swap_groups, true, true>);
  registry.add("space_to_depth", move<join_blocks, false>);
  registry.add("space_to_depth_grad", move<join_blocks, true>);
  registry.add("temporal_shift", temporal_shift<false>);
  registry.add("temporal_shift_grad", temporal_shift<true>);
  for (const char* const type : {"pad", "pad_constant_like"}) registry.add(type, pad<false>);
  for (const char* const type : {"pad_grad", "pad_constant_like_grad"})
    registry.add(type, pad<true>);
}

}  // namespace millrace::gpu
