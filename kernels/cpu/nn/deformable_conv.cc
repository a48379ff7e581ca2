#include <array>
#include <cmath>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace deformable_conv_kernels {
namespace {

struct DeformableConvAttrs {
  WindowAttrs window;
  int64_t groups = 1;
  int64_t parts = 1;  // deformable_groups: channels of a group share offsets
};

struct DeformableConvShape {
  int64_t batch, channels, height, width;
  int64_t out_channels, places_h, places_w;
  int64_t kernel_h, kernel_w;
  int64_t groups, parts;
  ops::Window window;

  [[nodiscard]] int64_t taps() const { return kernel_h * kernel_w; }
  [[nodiscard]] int64_t places() const { return places_h * places_w; }
  [[nodiscard]] int64_t image() const { return channels * height * width; }
  [[nodiscard]] int64_t column() const { return channels / groups * taps(); }
};

struct DeformableConvOperands {
  const Tensor* input;
  const Tensor* offset;
  const Tensor* filter;
  const Tensor* mask;  // null: ones, as in the first version of the op

  // Weights of an image; null: ones.
  template <typename T>
  [[nodiscard]] const T* mask_of(int64_t at) const {
    return mask == nullptr ? nullptr : mask->data<T>() + at;
  }
};

std::string describe_mask(const Tensor* mask) {
  return mask == nullptr ? std::string() : ", Mask " + describe(*mask);
}

StatusOr<DeformableConvShape> shape_of(const DeformableConvAttrs& attrs,
                                       const DeformableConvOperands& o) {
  const auto misfit = [&] {
    return KernelContext::error("Input {}, Offset {}{} and Filter {} do not match",
                                describe(*o.input), describe(*o.offset), describe_mask(o.mask),
                                describe(*o.filter));
  };
  for (const Tensor* const tensor : {o.input, o.offset, o.filter, o.mask}) {
    if (tensor == nullptr) continue;
    if (tensor->rank() != 4 || tensor->dtype() != o.input->dtype()) return misfit();
  }
  DeformableConvShape s{};
  s.batch = o.input->dim(0);
  s.channels = o.input->dim(1);
  s.height = o.input->dim(2);
  s.width = o.input->dim(3);
  s.out_channels = o.filter->dim(0);
  s.kernel_h = o.filter->dim(2);
  s.kernel_w = o.filter->dim(3);
  s.groups = attrs.groups;
  s.parts = attrs.parts;
  MILLRACE_ASSIGN_OR_RETURN(s.window, window_over(attrs.window, o.filter->dims().drop_front(2),
                                                  o.input->dims().drop_front(2)));
  s.places_h = ops::window_places(s.window, 0, s.height);
  s.places_w = ops::window_places(s.window, 1, s.width);
  const Dims field = {s.batch, s.parts * s.taps(), s.places_h, s.places_w};
  Dims pairs = field;
  pairs[1] *= 2;
  if (s.groups < 1 || s.parts < 1 || s.channels % s.groups != 0 || s.channels % s.parts != 0 ||
      s.out_channels % s.groups != 0 || o.filter->dim(1) != s.channels / s.groups ||
      s.places_h < 1 || s.places_w < 1 || o.offset->dims() != llvm::ArrayRef<int64_t>(pairs) ||
      (o.mask != nullptr && o.mask->dims() != llvm::ArrayRef<int64_t>(field)))
    return misfit();
  return s;
}

// A point between four pixels: their positions (-1: outside) and weights.
template <typename T>
struct DeformableConvPoint {
  std::array<int64_t, 4> at;
  std::array<T, 4> weight;
  std::array<T, 4> down;   // d weight / d row
  std::array<T, 4> right;  // d weight / d column
};

template <typename T>
DeformableConvPoint<T> point_at(const DeformableConvShape& s, T row, T column) {
  DeformableConvPoint<T> p{{-1, -1, -1, -1}, {}, {}, {}};
  if (!(row > -1 && column > -1 && row < static_cast<T>(s.height) &&
        column < static_cast<T>(s.width)))
    return p;
  const auto top = static_cast<int64_t>(std::floor(row));
  const auto left = static_cast<int64_t>(std::floor(column));
  const T below = row - static_cast<T>(top);
  const T beyond = column - static_cast<T>(left);
  for (size_t k = 0; k < 4; ++k) {
    const int64_t y = top + static_cast<int64_t>(k / 2);
    const int64_t x = left + static_cast<int64_t>(k % 2);
    if (y < 0 || x < 0 || y >= s.height || x >= s.width) continue;
    const T vertical = k / 2 == 0 ? 1 - below : below;
    const T horizontal = k % 2 == 0 ? 1 - beyond : beyond;
    p.at[k] = y * s.width + x;
    p.weight[k] = vertical * horizontal;
    p.down[k] = k / 2 == 0 ? -horizontal : horizontal;
    p.right[k] = k % 2 == 0 ? -vertical : vertical;
  }
  return p;
}

// Calls body(part, tap, position, element of Mask, element of the row's Offset, point) for all
// points of an image. The column's offset is places() elements after the row's.
template <typename T, typename Body>
void for_points(const DeformableConvShape& s, const T* offset, Body&& body) {
  for (int64_t part = 0; part < s.parts; ++part) {
    for (int64_t tap = 0; tap < s.taps(); ++tap) {
      for (int64_t place = 0; place < s.places(); ++place) {
        const int64_t field = (part * s.taps() + tap) * s.places() + place;
        const int64_t pair = (part * s.taps() + tap) * 2 * s.places() + place;
        const int64_t row = place / s.places_w * s.window.strides[0] - s.window.before[0] +
                            tap / s.kernel_w * s.window.dilations[0];
        const int64_t column = place % s.places_w * s.window.strides[1] - s.window.before[1] +
                               tap % s.kernel_w * s.window.dilations[1];
        body(part, tap, place, field, pair,
             point_at<T>(s, static_cast<T>(row) + offset[pair],
                         static_cast<T>(column) + offset[pair + s.places()]));
      }
    }
  }
}

// The matrix of windows [channels * taps, positions].
template <typename T>
void gather(const DeformableConvShape& s, const T* image, const T* offset, const T* mask,
            T* columns) {
  const int64_t of_part = s.channels / s.parts;
  for_points(s, offset,
             [&](int64_t part, int64_t tap, int64_t place, int64_t field, int64_t,
                 const DeformableConvPoint<T>& p) {
               for (int64_t c = part * of_part; c < (part + 1) * of_part; ++c) {
                 const T* const plane = image + c * s.height * s.width;
                 T value = 0;
                 for (size_t k = 0; k < 4; ++k) {
                   if (p.at[k] >= 0) value += p.weight[k] * plane[p.at[k]];
                 }
                 columns[(c * s.taps() + tap) * s.places() + place] =
                     mask == nullptr ? value : value * mask[field];
               }
             });
}

struct DeformableConvForwardArgs {
  ArgIndex input, offset, filter, mask;
  bool weighted;  // the op has Mask
};

StatusOr<DeformableConvOperands> operands_of(const KernelContext& ctx,
                                             const DeformableConvForwardArgs& args) {
  DeformableConvOperands o{};
  MILLRACE_ASSIGN_OR_RETURN(o.input, needed(ctx, args.input, "Input"));
  MILLRACE_ASSIGN_OR_RETURN(o.offset, needed(ctx, args.offset, "Offset"));
  MILLRACE_ASSIGN_OR_RETURN(o.filter, needed(ctx, args.filter, "Filter"));
  if (!args.weighted) return o;
  MILLRACE_ASSIGN_OR_RETURN(o.mask, needed(ctx, args.mask, "Mask"));
  return o;
}

// to[i, :] += sum over k of a(i, k) * from[k, :].
template <typename T, typename A>
void add_product(int64_t rows, int64_t inner, int64_t width, A&& a, const T* from, T* to) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < inner; ++k) {
      const T factor = a(i, k);
      for (int64_t p = 0; p < width; ++p) to[i * width + p] += factor * from[k * width + p];
    }
  }
}

// Memory for the windows of one image: [channels * taps, places].
template <typename T>
StatusOr<T*> columns_of(const KernelContext& ctx, const DeformableConvShape& s) {
  MILLRACE_ASSIGN_OR_RETURN(
      std::byte* const memory,
      ctx.device().scratch(static_cast<size_t>(s.channels * s.taps() * s.places()) * sizeof(T)));
  return reinterpret_cast<T*>(memory);
}

template <typename T>
Status run_forward(const KernelContext& ctx, const DeformableConvOperands& o,
                   const DeformableConvShape& s, Tensor& out) {
  MILLRACE_ASSIGN_OR_RETURN(T* const columns, columns_of<T>(ctx, s));
  fill_zero(out);
  const int64_t rows = s.out_channels / s.groups;
  for (int64_t n = 0; n < s.batch; ++n) {
    gather(s, o.input->data<T>() + n * s.image(),
           o.offset->data<T>() + n * 2 * s.parts * s.taps() * s.places(),
           o.mask_of<T>(n * s.parts * s.taps() * s.places()), columns);
    for (int64_t g = 0; g < s.groups; ++g) {
      const T* const filter = o.filter->data<T>() + g * rows * s.column();
      add_product(
          rows, s.column(), s.places(),
          [&](int64_t i, int64_t k) { return filter[i * s.column() + k]; },
          columns + g * s.column() * s.places(),
          out.data<T>() + (n * s.out_channels + g * rows) * s.places());
    }
  }
  return Ok();
}

DeformableConvAttrs read_attrs(const KernelSetup& op) {
  return {read_window_attrs(op), op.attr<int64_t>("groups"), op.attr<int64_t>("deformable_groups")};
}

template <bool kWeighted>
StatusOr<Kernel> deformable_conv(const KernelSetup& op) {
  const DeformableConvForwardArgs args{op.input("Input"), op.input("Offset"), op.input("Filter"),
                                       op.input("Mask"), kWeighted};
  const ArgIndex output = op.output("Output");
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const DeformableConvOperands o, operands_of(ctx, args));
    MILLRACE_ASSIGN_OR_RETURN(const DeformableConvShape s, shape_of(attrs, o));
    return dispatch<FloatTypes>(o.input->dtype(), [&](auto tag) {
      return run_forward<typename decltype(tag)::type>(ctx, o, s, ctx.out(output));
    });
  });
}

struct DeformableConvGradients {
  Tensor* input;
  Tensor* offset;
  Tensor* filter;
  Tensor* mask;
};

// Outputs of the gradient of the matrix of windows: image, mask and offsets; null if not requested.
template <typename T>
void scatter(const DeformableConvShape& s, const T* image, const T* offset, const T* mask,
             const T* columns, T* dimage, T* doffset, T* dmask) {
  const int64_t of_part = s.channels / s.parts;
  for_points(s, offset,
             [&](int64_t part, int64_t tap, int64_t place, int64_t field, int64_t pair,
                 const DeformableConvPoint<T>& p) {
               const T weight = mask == nullptr ? T{1} : mask[field];
               T value = 0;
               T down = 0;
               T right = 0;
               for (int64_t c = part * of_part; c < (part + 1) * of_part; ++c) {
                 const int64_t plane = c * s.height * s.width;
                 const T g = columns[(c * s.taps() + tap) * s.places() + place];
                 for (size_t k = 0; k < 4; ++k) {
                   if (p.at[k] < 0) continue;
                   const T pixel = image[plane + p.at[k]];
                   value += g * p.weight[k] * pixel;
                   down += g * p.down[k] * pixel;
                   right += g * p.right[k] * pixel;
                   if (dimage != nullptr) dimage[plane + p.at[k]] += g * weight * p.weight[k];
                 }
               }
               if (dmask != nullptr) dmask[field] = value;
               if (doffset == nullptr) return;
               doffset[pair] = down * weight;
               doffset[pair + s.places()] = right * weight;
             });
}

template <typename T>
Status run_backward(const KernelContext& ctx, const DeformableConvOperands& o,
                    const DeformableConvShape& s, const Tensor& dout,
                    const DeformableConvGradients& d) {
  MILLRACE_ASSIGN_OR_RETURN(T* const columns, columns_of<T>(ctx, s));
  const int64_t rows = s.out_channels / s.groups;
  const int64_t field = s.parts * s.taps() * s.places();
  for (int64_t n = 0; n < s.batch; ++n) {
    const T* const image = o.input->data<T>() + n * s.image();
    const T* const offset = o.offset->data<T>() + n * 2 * field;
    const T* const mask = o.mask_of<T>(n * field);
    const auto at = [&](Tensor* tensor, int64_t step) {
      return tensor == nullptr ? nullptr : tensor->data<T>() + n * step;
    };
    if (d.filter != nullptr) {
      gather(s, image, offset, mask, columns);
      for (int64_t i = 0; i < s.out_channels; ++i) {
        const T* const g = dout.data<T>() + (n * s.out_channels + i) * s.places();
        for (int64_t k = 0; k < s.column(); ++k) {
          const T* const column = columns + (i / rows * s.column() + k) * s.places();
          T sum = 0;
          for (int64_t p = 0; p < s.places(); ++p) sum += g[p] * column[p];
          d.filter->data<T>()[i * s.column() + k] += sum;
        }
      }
    }
    std::fill_n(columns, s.channels * s.taps() * s.places(), T{0});
    for (int64_t g = 0; g < s.groups; ++g) {
      const T* const filter = o.filter->data<T>() + g * rows * s.column();
      add_product(
          s.column(), rows, s.places(),
          [&](int64_t k, int64_t i) { return filter[i * s.column() + k]; },
          dout.data<T>() + (n * s.out_channels + g * rows) * s.places(),
          columns + g * s.column() * s.places());
    }
    scatter(s, image, offset, mask, columns, at(d.input, s.image()), at(d.offset, 2 * field),
            at(d.mask, field));
  }
  return Ok();
}

template <bool kWeighted>
StatusOr<Kernel> deformable_conv_grad(const KernelSetup& op) {
  const DeformableConvForwardArgs args{op.input("Input"), op.input("Offset"), op.input("Filter"),
                                       op.input("Mask"), kWeighted};
  const ArgIndex output_grad = op.input("Output@GRAD");
  const DeformableConvForwardArgs grads{op.output("Input@GRAD"), op.output("Offset@GRAD"),
                                        op.output("Filter@GRAD"), op.output("Mask@GRAD"),
                                        kWeighted};
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const DeformableConvOperands o, operands_of(ctx, args));
    MILLRACE_ASSIGN_OR_RETURN(const DeformableConvShape s, shape_of(attrs, o));
    DeformableConvGradients d{};
    MILLRACE_ASSIGN_OR_RETURN(d.input, result_like(ctx, grads.input, *o.input));
    MILLRACE_ASSIGN_OR_RETURN(d.offset, result_like(ctx, grads.offset, *o.offset));
    MILLRACE_ASSIGN_OR_RETURN(d.filter, result_like(ctx, grads.filter, *o.filter));
    if (kWeighted) {
      MILLRACE_ASSIGN_OR_RETURN(d.mask, result_like(ctx, grads.mask, *o.mask));
    }
    for (Tensor* const tensor : {d.input, d.offset, d.filter, d.mask}) {
      if (tensor != nullptr) fill_zero(*tensor);
    }
    const Tensor* const dout = ctx.find_in(output_grad);
    if (dout == nullptr) return Ok();
    if (dout->dtype() != o.input->dtype() || dout->numel() != s.batch * s.out_channels * s.places())
      return ctx.error("Output@GRAD {} does not match Input {}", describe(*dout),
                       describe(*o.input));
    return dispatch<FloatTypes>(dout->dtype(), [&](auto tag) {
      return run_backward<typename decltype(tag)::type>(ctx, o, s, *dout, d);
    });
  });
}

}  // namespace
}  // namespace deformable_conv_kernels

void add_nn_deformable_conv(KernelRegistry& registry) {
  using namespace deformable_conv_kernels;
  registry.add("deformable_conv", deformable_conv<true>);
  registry.add("deformable_conv_grad", deformable_conv_grad<true>);
  registry.add("deformable_conv_v1", deformable_conv<false>);
  registry.add("deformable_conv_v1_grad", deformable_conv_grad<false>);
}

}  // namespace millrace::kernels
