#include <algorithm>
#include <cassert>
#include <string>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_state.h"

// All code that differs between oneDNN 2 and 3 is here.
namespace millrace::kernels::dnn {
namespace onednn_primitives {
namespace {

dnnl::memory::dims list(llvm::ArrayRef<int64_t> values) {
  return {values.begin(), values.end()};
}

// oneDNN counts the elements skipped between those of the kernel: its dilation is one less.
dnnl::memory::dims gaps(llvm::ArrayRef<int64_t> dilations) {
  dnnl::memory::dims result = list(dilations);
  for (int64_t& value : result) --value;
  return result;
}

dnnl::algorithm native_activation(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return dnnl::algorithm::eltwise_relu;
    case Activation::kGelu:
      return dnnl::algorithm::eltwise_gelu_erf;
    case Activation::kGeluTanh:
      return dnnl::algorithm::eltwise_gelu_tanh;
    case Activation::kSigmoid:
      return dnnl::algorithm::eltwise_logistic;
    case Activation::kTanh:
      return dnnl::algorithm::eltwise_tanh;
    case Activation::kNone:
      break;
  }
  return dnnl::algorithm::undef;
}

using Forward = dnnl::convolution_forward;

// An input argument of a primitive.
dnnl::memory::desc factor_desc(const Convolution& spec, Desc desc) {
  if (spec.bf16_factors) desc.dtype = DType::kBfloat16;
  return any_layout(desc);
}

DType bias_type(const Convolution& spec) {
  return spec.scales.empty() ? spec.dst.dtype : DType::kFloat32;
}

// Scales of the dim of output channels.
void set_scales(dnnl::primitive_attr& attr, const std::vector<float>& scales, int dim) {
  if (!scales.empty()) attr.set_output_scales(1 << dim, scales);
}

// The description of a convolution in any direction, with all arguments as if they were inputs.
struct OnednnPrimitivesParts {
  explicit OnednnPrimitivesParts(const Convolution& spec)
      : src(factor_desc(spec, spec.src)),
        weights(factor_desc(spec, spec.weights)),
        bias(native(dense(bias_type(spec), spec.dst.dims[1]))),
        dst(factor_desc(spec, spec.dst)),
        strides(list(spec.strides)),
        gaps(onednn_primitives::gaps(spec.dilations)),
        before(list(spec.before)),
        after(list(spec.after)) {}

  dnnl::memory::desc src, weights, bias, dst;
  dnnl::memory::dims strides, gaps, before, after;
};

dnnl::algorithm method(const Convolution& spec) {
  return spec.winograd ? dnnl::algorithm::convolution_winograd
                       : dnnl::algorithm::convolution_direct;
}

// Without bias and fused operations: the hint that the gradient primitives need.
Forward::primitive_desc forward_desc(const Library& library, const OnednnPrimitivesParts& p,
                                     dnnl::algorithm how) {
  return {{dnnl::prop_kind::forward_training, how, p.src, p.weights, p.dst, p.strides, p.gaps,
           p.before, p.after},
          own_scratch(),
          library.engine};
}

dnnl::primitive_attr fused_ops(const Convolution& spec) {
  dnnl::post_ops post;
  if (spec.accumulate) post.append_sum(1.0F);
  switch (spec.rectifier) {
    case Rectifier::kNone:
      break;
    case Rectifier::kRelu:
      post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
      break;
    case Rectifier::kRelu6:
      post.append_eltwise(1.0F, dnnl::algorithm::eltwise_clip, 0.0F, spec.alpha);
      break;
    case Rectifier::kLeakyRelu:
      post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, spec.alpha, 0.0F);
      break;
  }
  dnnl::primitive_attr attr = own_scratch();
  attr.set_post_ops(post);
  set_scales(attr, spec.scales, 1);
  return attr;
}

// Programs for inference (recognized by a bias), windows of several pixels with strides above 1,
// and images of which one and its filters fill the cache of a core. For 256 channels of 28 x 28 and
// eight images: 8.6 instead of 15.1 ms.
bool strides_over_large_images(const Convolution& spec) {
  constexpr int64_t kManyChannels = 256;
  constexpr int64_t kManyPixels = 400;
  const Dims& src = spec.src.dims;
  if (!spec.bias || src.size() != 4 || spec.weights.dims.size() != 4 || spec.bf16_factors)
    return false;
  return spec.strides[0] > 1 && spec.weights.dims[2] * spec.weights.dims[3] > 1 &&
         src[1] >= kManyChannels && src[2] * src[3] >= kManyPixels;
}

Forward::primitive_desc forward_desc(const Library& library, const Convolution& spec) {
  OnednnPrimitivesParts p(spec);
  p.dst = any_layout(spec.dst);
  // The kernels that oneDNN 2.6 uses for inference only are slower on small images and prefer
  // another layout than the neighbouring ops. They pay off where the others read the same memory
  // repeatedly.
  const bool infers = spec.packed_weights || !spec.scales.empty();
  const auto kind = infers || strides_over_large_images(spec) ? dnnl::prop_kind::forward_inference
                                                              : dnnl::prop_kind::forward_training;
  const dnnl::algorithm how = method(spec);
  const dnnl::primitive_attr attr = fused_ops(spec);
  if (!spec.bias) {
    return {{kind, how, p.src, p.weights, p.dst, p.strides, p.gaps, p.before, p.after},
            attr,
            library.engine};
  }
  return {{kind, how, p.src, p.weights, p.bias, p.dst, p.strides, p.gaps, p.before, p.after},
          attr,
          library.engine};
}

using BackwardWeights = dnnl::convolution_backward_weights;

// weights: layout of the result
BackwardWeights::primitive_desc weights_gradient_desc(const Library& library,
                                                      const OnednnPrimitivesParts& p,
                                                      const dnnl::memory::desc& weights,
                                                      dnnl::algorithm how,
                                                      const Forward::primitive_desc& hint) {
  return {{how, p.src, weights, p.dst, p.strides, p.gaps, p.before, p.after},
          own_scratch(),
          library.engine,
          hint};
}

// Writes the gradient in the layout of the weights if that costs the library nothing.
BackwardWeights::primitive_desc weights_gradient_desc(const Library& library,
                                                      const Convolution& spec,
                                                      const NativeLayout* layout) {
  OnednnPrimitivesParts p(spec);
  const dnnl::algorithm how = method(spec);
  const auto hint = forward_desc(library, p, how);
  BackwardWeights::primitive_desc best =
      weights_gradient_desc(library, p, any_layout(spec.weights), how, hint);
  if (layout == nullptr || best.diff_weights_desc() == layout->desc()) return best;
  // the hint describes inputs
  if (!spec.bf16_factors) p.weights = layout->desc();
  try {
    const Forward::primitive_desc same = forward_desc(library, p, how);
    BackwardWeights::primitive_desc other =
        weights_gradient_desc(library, p, layout->desc(), how, same);
    const bool as_fast = std::string(other.impl_info_str()) == best.impl_info_str();
    return as_fast ? other : best;
  } catch (const dnnl::error&) {
    return best;
  }
}

// How a factor is stored, if tiles can read it: a matrix that is contiguous in one direction.
struct TileLayout {
  bool transposed;
  int64_t stride;
};
std::optional<TileLayout> tile_layout(const Desc& desc) {
  if (desc.dtype != DType::kFloat32 || desc.dims.size() != 2) return std::nullopt;
  if (desc.strides[1] == 1) return TileLayout{false, desc.strides[0]};
  if (desc.strides[0] == 1) return TileLayout{true, desc.strides[1]};
  return std::nullopt;
}

// The tile product, if it is faster.
std::optional<tiles::Shape> tile_shape(const Product& spec, int threads) {
  const bool rectifies = spec.activation == Activation::kRelu;
  if (spec.bf16_factors || spec.float_units || (spec.activation != Activation::kNone && !rectifies))
    return std::nullopt;
  const auto a = tile_layout(spec.src);
  const auto b = tile_layout(spec.weights);
  const auto c = tile_layout(spec.dst);
  if (!a || !b || !c || c->transposed) return std::nullopt;
  const tiles::Shape shape{
      .rows = spec.dst.dims[0],
      .columns = spec.dst.dims[1],
      .inner = spec.src.dims[1],
      .a_transposed = a->transposed,
      .b_transposed = b->transposed,
      .a_stride = a->stride,
      .b_stride = b->stride,
      .c_stride = c->stride,
      .alpha = spec.alpha,
      .accumulate = spec.accumulate,
      .rectify = rectifies,
  };
  if (!tiles::pay(shape, threads)) return std::nullopt;
  return shape;
}

// The layout in which the library gets a factor of a product that sums over its rows. Where oneDNN
// 2.6 expects copies to cost too much, it multiplies with AVX2 on factors in place: rows that are a
// multiple of 4 KiB apart then share the same few lines of the L1 cache, and 1024 x 256 x 256 takes
// 1.5 times as long, 64 x 1024 x 1024 1.4 times. A copy with other distances costs less.
dnnl::memory::desc factor_layout(const Desc& factor, bool sums_over_rows, const Dims& dst) {
  constexpr int64_t kPage = 1024;  // floats
  const auto layout = tile_layout(factor);
  if (!layout || !sums_over_rows || layout->stride % kPage != 0 || cpu_isa_allows("avx512"))
    return native(factor);
  const bool in_place =
      1.0 / static_cast<double>(dst[0]) + 1.0 / static_cast<double>(dst[1]) >= 0.0038;
  const bool pays = std::min(dst[0], dst[1]) >= 64;
  Desc padded = factor;
  if (in_place && pays) padded.strides[layout->transposed ? 1 : 0] += 16;
  return native(padded);
}

}  // namespace
}  // namespace onednn_primitives

StatusOr<Primitive> convolution(CpuDevice& device, const Convolution& spec) {
  using namespace onednn_primitives;
  MILLRACE_ASSIGN_OR_RETURN(Library* const library, library_of(device));
  return guarded<Primitive>("convolution", [&] {
    const auto desc = forward_desc(*library, spec);
    PrimitiveBuilder builder(*library);
    builder.add(Arg::kSrc, spec.src, desc.src_desc());
    builder.add(Arg::kWeights, spec.weights, desc.weights_desc());
    if (spec.bias)
      builder.add(Arg::kBias, dense(bias_type(spec), spec.dst.dims[1]), desc.bias_desc());
    builder.add(Arg::kDst, spec.dst, desc.dst_desc(), spec.accumulate);
    return builder.build(Forward(desc), desc.scratchpad_desc());
  });
}

StatusOr<Primitive> convolution_backward_data(CpuDevice& device, const Convolution& spec) {
  using namespace onednn_primitives;
  MILLRACE_ASSIGN_OR_RETURN(Library* const library, library_of(device));
  return guarded<Primitive>("convolution gradient of data", [&] {
    using Backward = dnnl::convolution_backward_data;
    const OnednnPrimitivesParts p(spec);
    const auto hint = forward_desc(*library, p, method(spec));
    const Backward::primitive_desc desc({method(spec), any_layout(spec.src), p.weights, p.dst,
                                         p.strides, p.gaps, p.before, p.after},
                                        own_scratch(), library->engine, hint);
    PrimitiveBuilder builder(*library);
    builder.add(Arg::kDiffDst, spec.dst, desc.diff_dst_desc());
    builder.add(Arg::kWeights, spec.weights, desc.weights_desc());
    builder.add(Arg::kDiffSrc, spec.src, desc.diff_src_desc());
    return builder.build(Backward(desc), desc.scratchpad_desc());
  });
}

StatusOr<Primitive> convolution_backward_weights(CpuDevice& device, const Convolution& spec) {
  using namespace onednn_primitives;
  MILLRACE_ASSIGN_OR_RETURN(Library* const library, library_of(device));
  MILLRACE_ASSIGN_OR_RETURN(const NativeLayout* const layout, native_layout(spec.weights_layout));
  return guarded<Primitive>("convolution gradient of weights", [&] {
    const auto desc = weights_gradient_desc(*library, spec, layout);
    PrimitiveBuilder builder(*library);
    builder.add(Arg::kSrc, spec.src, desc.src_desc());
    builder.add(Arg::kDiffDst, spec.dst, desc.diff_dst_desc());
    builder.add(Arg::kDiffWeights, spec.weights, desc.diff_weights_desc());
    return builder.build(BackwardWeights(desc), desc.scratchpad_desc());
  });
}

StatusOr<Primitive> product(CpuDevice& device, const Product& spec) {
  using namespace onednn_primitives;
  assert(!spec.bias || spec.alpha == 1.0F);
  assert(!spec.accumulate || !spec.summand);
  assert(spec.scales.empty() || spec.dst.dims.size() == 2);
  if (const auto shape = tile_shape(spec, device.threads())) return tile_primitive(*shape);
  MILLRACE_ASSIGN_OR_RETURN(Library* const library, library_of(device));
  return guarded<Primitive>("product", [&] {
    Desc factors[] = {spec.src, spec.weights};
    for (Desc& factor : factors) {
      if (spec.bf16_factors) factor.dtype = DType::kBfloat16;
    }
    const auto a = tile_layout(factors[0]);
    const auto b = tile_layout(factors[1]);
    const dnnl::memory::desc src = factor_layout(factors[0], a && a->transposed, spec.dst.dims);
    const dnnl::memory::desc weights =
        spec.pack_weights ? any_layout(factors[1])
                          : factor_layout(factors[1], b && !b->transposed, spec.dst.dims);
    const dnnl::memory::desc dst = native(spec.dst);
    dnnl::primitive_attr attr = own_scratch();
    if (spec.alpha != 1.0F) attr.set_output_scales(0, {spec.alpha});
    set_scales(attr, spec.scales, 1);
    dnnl::post_ops post;
    if (spec.accumulate) post.append_sum(1.0F);
    if (spec.summand) post.append_binary(dnnl::algorithm::binary_add, dst);
    if (spec.activation != Activation::kNone)
      post.append_eltwise(1.0F, native_activation(spec.activation), 0.0F, 0.0F);
    attr.set_post_ops(post);
    Dims bias_dims(spec.dst.dims.size(), 1);
    bias_dims.back() = spec.dst.dims.back();
    const Desc bias = dense(spec.scales.empty() ? spec.dst.dtype : DType::kFloat32, bias_dims);
    const dnnl::matmul::desc op = spec.bias ? dnnl::matmul::desc(src, weights, native(bias), dst)
                                            : dnnl::matmul::desc(src, weights, dst);
    const dnnl::matmul::primitive_desc desc(op, attr, library->engine);
    PrimitiveBuilder builder(*library);
    builder.add(Arg::kSrc, spec.src, desc.src_desc());
    builder.add(Arg::kWeights, spec.weights, desc.weights_desc());
    if (spec.bias) builder.add(Arg::kBias, bias, desc.bias_desc());
    if (spec.summand) builder.add(Arg::kSummand, spec.dst, dst);
    builder.add(Arg::kDst, spec.dst, desc.dst_desc());
    return builder.build(dnnl::matmul(desc), desc.scratchpad_desc());
  });
}

bool multiplies_int8() {
  static const bool exact = cpu_isa_allows("avx512_vnni") || cpu_isa_allows("avx2_vnni");
  return exact;
}

}  // namespace millrace::kernels::dnn
