#include <cassert>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_state.h"

// Everything whose interface changed between oneDNN 2 and 3 is here.
namespace millrace::kernels::dnn {
namespace {

dnnl::memory::dims list(llvm::ArrayRef<int64_t> values) {
  return {values.begin(), values.end()};
}

// oneDNN counts the elements between those of the kernel.
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

Forward::primitive_desc forward_desc(const Library& library, const Convolution& spec,
                                     dnnl::prop_kind kind) {
  const auto direct = dnnl::algorithm::convolution_direct;
  const dnnl::memory::dims strides = list(spec.strides);
  const dnnl::memory::dims before = list(spec.before);
  const dnnl::memory::dims after = list(spec.after);
  if (!spec.bias) {
    return {{kind, direct, any_layout(spec.src), any_layout(spec.weights), any_layout(spec.dst),
             strides, gaps(spec.dilations), before, after},
            library.engine};
  }
  const dnnl::memory::desc bias = native(dense(spec.dst.dtype, spec.dst.dims[1]));
  return {{kind, direct, any_layout(spec.src), any_layout(spec.weights), bias, any_layout(spec.dst),
           strides, gaps(spec.dilations), before, after},
          library.engine};
}

}  // namespace

StatusOr<Primitive> convolution(CpuDevice& device, const Convolution& spec) {
  MILLRACE_ASSIGN_OR_RETURN(Library* const library, library_of(device));
  return guarded<Primitive>("convolution", [&] {
    const auto desc = forward_desc(*library, spec, dnnl::prop_kind::forward_training);
    PrimitiveBuilder builder(*library);
    builder.add(Arg::kSrc, spec.src, desc.src_desc());
    builder.add(Arg::kWeights, spec.weights, desc.weights_desc());
    if (spec.bias)
      builder.add(Arg::kBias, dense(spec.dst.dtype, spec.dst.dims[1]), desc.bias_desc());
    builder.add(Arg::kDst, spec.dst, desc.dst_desc());
    return builder.build(Forward(desc));
  });
}

StatusOr<Primitive> convolution_backward_data(CpuDevice& device, const Convolution& spec) {
  MILLRACE_ASSIGN_OR_RETURN(Library* const library, library_of(device));
  return guarded<Primitive>("convolution gradient of data", [&] {
    using Backward = dnnl::convolution_backward_data;
    Convolution plain = spec;
    plain.bias = false;
    const auto hint = forward_desc(*library, plain, dnnl::prop_kind::forward_training);
    const Backward::primitive_desc desc(
        {dnnl::algorithm::convolution_direct, any_layout(spec.src), any_layout(spec.weights),
         any_layout(spec.dst), list(spec.strides), gaps(spec.dilations), list(spec.before),
         list(spec.after)},
        library->engine, hint);
    PrimitiveBuilder builder(*library);
    builder.add(Arg::kDiffDst, spec.dst, desc.diff_dst_desc());
    builder.add(Arg::kWeights, spec.weights, desc.weights_desc());
    builder.add(Arg::kDiffSrc, spec.src, desc.diff_src_desc());
    return builder.build(Backward(desc));
  });
}

StatusOr<Primitive> convolution_backward_weights(CpuDevice& device, const Convolution& spec) {
  MILLRACE_ASSIGN_OR_RETURN(Library* const library, library_of(device));
  return guarded<Primitive>("convolution gradient of weights", [&] {
    using Backward = dnnl::convolution_backward_weights;
    Convolution plain = spec;
    plain.bias = false;
    const auto hint = forward_desc(*library, plain, dnnl::prop_kind::forward_training);
    const Backward::primitive_desc desc(
        {dnnl::algorithm::convolution_direct, any_layout(spec.src), any_layout(spec.weights),
         any_layout(spec.dst), list(spec.strides), gaps(spec.dilations), list(spec.before),
         list(spec.after)},
        library->engine, hint);
    PrimitiveBuilder builder(*library);
    builder.add(Arg::kSrc, spec.src, desc.src_desc());
    builder.add(Arg::kDiffDst, spec.dst, desc.diff_dst_desc());
    builder.add(Arg::kDiffWeights, spec.weights, desc.diff_weights_desc());
    return builder.build(Backward(desc));
  });
}

StatusOr<Primitive> product(CpuDevice& device, const Product& spec) {
  assert(!spec.bias || spec.alpha == 1.0F);
  MILLRACE_ASSIGN_OR_RETURN(Library* const library, library_of(device));
  return guarded<Primitive>("product", [&] {
    const dnnl::memory::desc src = native(spec.src);
    const dnnl::memory::desc weights =
        spec.pack_weights ? any_layout(spec.weights) : native(spec.weights);
    const dnnl::memory::desc dst = native(spec.dst);
    dnnl::primitive_attr attr;
    if (spec.alpha != 1.0F) attr.set_output_scales(0, {spec.alpha});
    dnnl::post_ops post;
    if (spec.accumulate) post.append_sum(1.0F);
    if (spec.activation != Activation::kNone)
      post.append_eltwise(1.0F, native_activation(spec.activation), 0.0F, 0.0F);
    attr.set_post_ops(post);
    Dims bias_dims(spec.dst.dims.size(), 1);
    bias_dims.back() = spec.dst.dims.back();
    const Desc bias = dense(spec.dst.dtype, bias_dims);
    const dnnl::matmul::desc op = spec.bias ? dnnl::matmul::desc(src, weights, native(bias), dst)
                                            : dnnl::matmul::desc(src, weights, dst);
    const dnnl::matmul::primitive_desc desc(op, attr, library->engine);
    PrimitiveBuilder builder(*library);
    builder.add(Arg::kSrc, spec.src, desc.src_desc());
    builder.add(Arg::kWeights, spec.weights, desc.weights_desc());
    if (spec.bias) builder.add(Arg::kBias, bias, desc.bias_desc());
    builder.add(Arg::kDst, spec.dst, desc.dst_desc());
    return builder.build(dnnl::matmul(desc));
  });
}

}  // namespace millrace::kernels::dnn
