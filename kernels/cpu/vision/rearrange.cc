#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/registry.h"

// pixel_shuffle, shuffle_channel, space_to_depth and temporal_shift: elements are only moved, so
// only the size of the element type matters.
namespace millrace::kernels {
namespace rearrange {
namespace {

// A tensor viewed with six dims, and the order of these dims in another tensor.
struct Permutation {
  std::array<int64_t, 6> dims;  // of the source tensor
  std::array<size_t, 6> order;  // dim i of the target tensor is dim order[i] of the source
};

// The inverse permutation.
Permutation inverse(const Permutation& p) {
  Permutation back{};
  for (size_t i = 0; i < 6; ++i) {
    back.dims[i] = p.dims[p.order[i]];
    back.order[p.order[i]] = i;
  }
  return back;
}

template <typename Word>
void permute_words(const Permutation& p, const std::byte* from, std::byte* to) {
  std::array<int64_t, 6> strides{};
  int64_t stride = 1;
  for (size_t i = 6; i-- > 0; stride *= p.dims[i]) strides[i] = stride;
  std::array<int64_t, 6> size{};
  std::array<int64_t, 6> step{};
  for (size_t i = 0; i < 6; ++i) {
    size[i] = p.dims[p.order[i]];
    step[i] = strides[p.order[i]];
  }
  const auto* const in = reinterpret_cast<const Word*>(from);
  auto* out = reinterpret_cast<Word*>(to);
  for (int64_t a = 0; a < size[0]; ++a)
    for (int64_t b = 0; b < size[1]; ++b)
      for (int64_t c = 0; c < size[2]; ++c)
        for (int64_t d = 0; d < size[3]; ++d)
          for (int64_t e = 0; e < size[4]; ++e) {
            const Word* const line =
                in + a * step[0] + b * step[1] + c * step[2] + d * step[3] + e * step[4];
            for (int64_t f = 0; f < size[5]; ++f) *out++ = line[f * step[5]];
          }
}

Status permute(const Permutation& p, const Tensor& from, Tensor& to) {
  if (from.numel() == 0) return Ok();
  if (from.bytes() != to.bytes() || from.dtype() != to.dtype())
    return KernelContext::error("cannot rearrange {} to {}", describe(from), describe(to));
  switch (dtype_size(from.dtype())) {
    case 1:
      permute_words<uint8_t>(p, from.raw(), to.raw());
      return Ok();
    case 2:
      permute_words<uint16_t>(p, from.raw(), to.raw());
      return Ok();
    case 4:
      permute_words<uint32_t>(p, from.raw(), to.raw());
      return Ok();
    default:
      permute_words<uint64_t>(p, from.raw(), to.raw());
      return Ok();
  }
}

// Returns the permutation of one op, given the dims of its X (or of a tensor of that shape).
using Rule = std::function<StatusOr<Permutation>(llvm::ArrayRef<int64_t> x)>;

Status misfit(const char* what, int64_t number, llvm::ArrayRef<int64_t> dims) {
  return KernelContext::error("{} ({}) does not fit an image tensor of dims {}", what, number,
                              ops::dims_text(dims));
}

// Moves channels [rest, factor, factor] to pixels.
Rule pixel_shuffle_rule(const KernelSetup& op) {
  return [factor = op.attr<int64_t>("upscale_factor"), last = channels_last(op, "data_format")](
             llvm::ArrayRef<int64_t> x) -> StatusOr<Permutation> {
    if (x.size() != 4 || factor < 1 || x[last ? 3 : 1] % (factor * factor) != 0)
      return misfit("attribute 'upscale_factor'", factor, x);
    if (last) {
      return Permutation{{x[0], x[1], x[2], x[3] / (factor * factor), factor, factor},
                         {0, 1, 4, 2, 5, 3}};
    }
    return Permutation{{x[0], x[1] / (factor * factor), factor, factor, x[2], x[3]},
                       {0, 1, 4, 2, 5, 3}};
  };
}

Rule shuffle_channel_rule(const KernelSetup& op) {
  return [group = op.attr<int64_t>("group")](llvm::ArrayRef<int64_t> x) -> StatusOr<Permutation> {
    if (x.size() != 4 || group < 1 || x[1] % group != 0)
      return misfit("attribute 'group'", group, x);
    return Permutation{{x[0], group, x[1] / group, 1, x[2], x[3]}, {0, 2, 1, 3, 4, 5}};
  };
}

// As in the original, this is what Darknet's reorg layer does, not what the name says: the channels
// of X are viewed as [rows, columns of a block, rest]; those of a block become pixels, and the
// result is viewed with the dims of Out.
Rule space_to_depth_rule(const KernelSetup& op) {
  return
      [block = op.attr<int64_t>("blocksize")](llvm::ArrayRef<int64_t> x) -> StatusOr<Permutation> {
        if (x.size() != 4 || block < 1 || x[1] % (block * block) != 0 || x[2] % block != 0 ||
            x[3] % block != 0)
          return misfit("attribute 'blocksize'", block, x);
        return Permutation{{x[0], block, block, x[1] / (block * block), x[2], x[3]},
                           {0, 3, 4, 1, 5, 2}};
      };
}

template <Rule (*kRule)(const KernelSetup&)>
StatusOr<Kernel> forward(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=, rule = kRule(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Permutation p, rule(in->dims()));
    return permute(p, *in, ctx.out(out));
  });
}

// The original's gradient of shuffle_channel applies the forward shuffle again. That is the inverse
// only if the number of groups equals the number of channels per group.
StatusOr<Kernel> shuffle_channel_grad(const KernelSetup& op) {
  const ArgIndex out_grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  return Kernel([=, rule = shuffle_channel_rule(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dout, needed(ctx, out_grad, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, x_grad, *dout));
    if (dx == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Permutation p, rule(dout->dims()));
    return permute(p, *dout, *dx);
  });
}

// Inference has set the dims of X@GRAD to those of X.
template <Rule (*kRule)(const KernelSetup&)>
StatusOr<Kernel> backward(const KernelSetup& op) {
  const ArgIndex out_grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  return Kernel([=, rule = kRule(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dout, needed(ctx, out_grad, "Out@GRAD"));
    Tensor* const dx = ctx.find_out(x_grad);
    if (dx == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Permutation p, rule(dx->dims()));
    return permute(inverse(p), *dout, *dx);
  });
}

// For each image of a video, some channels come from the previous image and some from the next one;
// `back` swaps the two, which gives the gradient.
template <bool kBack>
StatusOr<Kernel> temporal_shift(const KernelSetup& op) {
  const ArgIndex x = op.input(kBack ? "Out@GRAD" : "X");
  const ArgIndex out = op.output(kBack ? "X@GRAD" : "Out");
  const auto segments = op.attr<int64_t>("seg_num");
  const auto ratio = op.attr<float>("shift_ratio");
  return Kernel([=, last = channels_last(op, "data_format")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, kBack ? "Out@GRAD" : "X"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, out, *in));
    if (to == nullptr || in->numel() == 0) return Ok();
    if (in->rank() != 4 || segments < 1 || in->dim(0) % segments != 0)
      return misfit("attribute 'seg_num'", segments, in->dims());
    const int64_t channels = channel_count(in->dims(), last);
    const auto first =
        std::min(static_cast<int64_t>(static_cast<float>(channels) * ratio), channels);
    const auto second =
        std::min(static_cast<int64_t>(static_cast<float>(channels) * 2 * ratio), channels);
    const int64_t image = in->bytes() / in->dim(0);
    const int64_t runs =
        last ? in->dim(1) * in->dim(2) : 1;  // contiguous runs with all channels, per image
    const int64_t run = image / runs;
    const int64_t channel = run / channels;
    const std::array<int64_t, 4> ends = {0, first * channel, second * channel, run};
    const std::array<int64_t, 3> shift = {kBack ? 1 : -1, kBack ? -1 : 1, 0};
    for (int64_t n = 0; n < in->dim(0); ++n) {
      for (int64_t r = 0; r < runs; ++r) {
        for (size_t part = 0; part < 3; ++part) {
          const int64_t t = n % segments + shift[part];
          std::byte* const target = to->raw() + n * image + r * run + ends[part];
          const auto bytes = static_cast<size_t>(ends[part + 1] - ends[part]);
          if (t < 0 || t >= segments) {
            std::memset(target, 0, bytes);
          } else {
            std::memcpy(target, in->raw() + (n + shift[part]) * image + r * run + ends[part],
                        bytes);
          }
        }
      }
    }
    return Ok();
  });
}

}  // namespace
}  // namespace rearrange

void add_vision_rearrange(KernelRegistry& registry) {
  using namespace rearrange;
  registry.add("pixel_shuffle", forward<pixel_shuffle_rule>);
  registry.add("pixel_shuffle_grad", backward<pixel_shuffle_rule>);
  registry.add("shuffle_channel", forward<shuffle_channel_rule>);
  registry.add("shuffle_channel_grad", shuffle_channel_grad);
  registry.add("space_to_depth", forward<space_to_depth_rule>);
  registry.add("space_to_depth_grad", backward<space_to_depth_rule>);
  registry.add("temporal_shift", temporal_shift<false>);
  registry.add("temporal_shift_grad", temporal_shift<true>);
}

}  // namespace millrace::kernels
