#include "kernels/cpu/nn/conv_pass.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <memory>

#include <llvm/ADT/STLExtras.h>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/nn/plain_conv.h"
#include "kernels/cpu/nn/winograd.h"
#include "kernels/dispatch.h"

namespace millrace::kernels {
namespace conv_pass {
namespace {

Status misfit(const char* what, const Tensor& src, const Tensor& weights, const Tensor& dst) {
  return KernelContext::error("{}: images {} and {}, filter {}", what, describe(src), describe(dst),
                              describe(weights));
}

// Inference has checked forward ops only; a gradient op may pass anything.
Status check_operands(const Tensor& src, const Tensor& weights, const Tensor& dst,
                      const ConvAttrs& attrs) {
  const size_t rank = src.rank();
  if (rank < 3 || rank > 5 || weights.rank() != rank || dst.rank() != rank)
    return misfit("ranks of a convolution must be the same, 3 to 5", src, weights, dst);
  const int64_t out = channel_count(dst.dims(), attrs.channels_last);
  const int64_t in = channel_count(src.dims(), attrs.channels_last);
  const int64_t groups = attrs.groups;
  if (groups < 1 || src.dim(0) != dst.dim(0) || weights.dim(0) != out || out % groups != 0 ||
      in % groups != 0 || weights.dim(1) != in / groups)
    return misfit("batch or channels of a convolution do not fit", src, weights, dst);
  return Ok();
}

dnn::Desc weights_desc(const Tensor& weights, int64_t groups) {
  if (groups == 1) return dnn::dense(weights.dtype(), weights.dims());
  Dims dims(weights.dims().begin(), weights.dims().end());
  dims[0] /= groups;
  dims.insert(dims.begin(), groups);
  return dnn::dense(weights.dtype(), dims);
}

// to += from; both have the same layout.
Status add_images(const Tensor& from, Tensor& to) {
  if (from.dtype() != to.dtype() || from.dims() != to.dims()) {
    return KernelContext::error("images to add must match, found {} and {}", describe(from),
                                describe(to));
  }
  return dispatch<FloatTypes>(to.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const summand = stored<T>(from);
    T* const sum = stored<T>(to);
    const int64_t count = stored_count(to);
    for (int64_t i = 0; i < count; ++i) sum[i] += summand[i];
    return Ok();
  });
}

template <typename T>
void rectify(const dnn::Convolution& spec, Tensor& images) {
  const T alpha = static_cast<T>(spec.alpha);
  for (T& v : images.values<T>()) {
    switch (spec.rectifier) {
      case dnn::Rectifier::kNone:
        return;
      case dnn::Rectifier::kRelu:
        v = v > T(0) ? v : T(0);
        break;
      case dnn::Rectifier::kRelu6:
        v = std::min(std::max(v, T(0)), alpha);
        break;
      case dnn::Rectifier::kLeakyRelu:
        v = v < T(0) ? alpha * v : v;
        break;
    }
  }
}

constexpr int64_t kGrain = 65536;  // elements that justify a second thread

// The sum of products with 0 is NaN if there is a value that is not finite.
bool is_finite(CpuDevice& device, const Tensor& tensor) {
  constexpr int64_t kLanes = 16;
  const float* const x = stored<float>(tensor);
  std::atomic<bool> finite = true;
  const auto count = static_cast<int64_t>(tensor.storage_bytes() / sizeof(float));
  device.parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    float sums[kLanes] = {};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) sums[k] += x[i + k] * 0.0F;
    for (; i < end; ++i) sums[0] += x[i] * 0.0F;
    for (const float sum : sums)
      if (std::isnan(sum)) finite = false;
  });
  return finite;
}

// True if the rectifier keeps NaN, of which the library would make 0, and there may be some.
bool must_keep_nan(CpuDevice& device, const dnn::Convolution& spec, const ConvTensors& t,
                   const Tensor* bias, const Tensor* residual) {
  if (spec.rectifier != dnn::Rectifier::kRelu6) return false;
  const std::initializer_list<const Tensor*> operands{&t.src, &t.weights, bias, residual};
  return llvm::any_of(operands, [&](const Tensor* x) {
    return x != nullptr && x->dtype() == DType::kFloat32 && !is_finite(device, *x);
  });
}

// relu6 of elements in any order.
void bound(CpuDevice& device, Tensor& images, float most) {
  float* const x = stored<float>(images);
  const auto count = static_cast<int64_t>(images.storage_bytes() / sizeof(float));
  device.parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      x[i] = x[i] < 0.0F ? 0.0F : x[i] > most ? most : x[i];  // NaN stays
  });
}

}  // namespace
}  // namespace conv_pass

bool cuts_border(const dnn::Convolution& spec) {
  const auto cuts = [](int64_t padding) { return padding < 0; };
  return llvm::any_of(spec.before, cuts) || llvm::any_of(spec.after, cuts);
}

StatusOr<dnn::Convolution> describe_convolution(const ConvAttrs& attrs, const Tensor& src,
                                                const Tensor& weights, const Tensor& dst) {
  using namespace conv_pass;
  MILLRACE_RETURN_IF_ERROR(check_operands(src, weights, dst, attrs));
  const auto size = spatial_dims(src.dims(), attrs.channels_last);
  const auto places = spatial_dims(dst.dims(), attrs.channels_last);
  MILLRACE_ASSIGN_OR_RETURN(
      const ops::Window window,
      window_over(attrs.window, weights.dims().drop_front(2), attrs.transposed ? places : size));
  for (size_t i = 0; i < size.size(); ++i) {
    if (ops::window_places(window, i, size[i]) != places[i])
      return misfit("the output dims do not fit the window", src, weights, dst);
  }
  dnn::Convolution spec;
  spec.src = dnn::image(src, attrs.channels_last);
  spec.weights = weights_desc(weights, attrs.groups);
  spec.dst = dnn::image(dst, attrs.channels_last);
  spec.strides = window.strides;
  spec.dilations = window.dilations;
  spec.before = window.before;
  spec.after = window.after;
  return spec;
}

Status place_over(CpuDevice& device, Tensor* residual, const LayoutPtr& layout, Tensor& dst) {
  const Dims dims(dst.dims().begin(), dst.dims().end());
  if (residual == nullptr) return dst.resize(dst.dtype(), dims, layout);
  MILLRACE_RETURN_IF_ERROR(bring_to(device, *residual, layout));
  MILLRACE_RETURN_IF_ERROR(dst.resize(dst.dtype(), dims, layout));
  if (dst.raw() != residual->raw())
    std::memcpy(dst.raw(), residual->raw(), static_cast<size_t>(dst.storage_bytes()));
  return Ok();
}

LayoutPtr result_layout(const dnn::Primitive& primitive, dnn::Arg arg, const Tensor& result) {
  LayoutPtr layout = primitive.layout(arg);
  // with few channels, padding costs the following ops more than a conversion
  const bool fits = layout != nullptr && 4 * layout->bytes() <= 5 * result.bytes();
  return fits ? layout : nullptr;
}

StatusOr<dnn::Primitive> ConvPass::make(CpuDevice& device, const dnn::Convolution& spec) const {
  switch (kind_) {
    case Kind::kForward:
      return dnn::convolution(device, spec);
    case Kind::kBackwardData:
      return dnn::convolution_backward_data(device, spec);
    case Kind::kBackwardWeights:
      break;
  }
  return dnn::convolution_backward_weights(device, spec);
}

StatusOr<ConvPass::Prepared> ConvPass::prepare(CpuDevice& device, const ConvTensors& t,
                                               const Layouts& layouts, bool bias,
                                               bool residual) const {
  if (t.src.dtype() != t.weights.dtype() || t.src.dtype() != t.dst.dtype())
    return conv_pass::misfit("element types of a convolution differ", t.src, t.weights, t.dst);
  MILLRACE_ASSIGN_OR_RETURN(dnn::Convolution spec,
                            describe_convolution(attrs_, t.src, t.weights, t.dst));
  spec.bias = bias;
  spec.weights_layout = layouts.weights_grad;
  spec.accumulate = residual;
  spec.rectifier = fusion_.rectifier;
  spec.alpha = fusion_.alpha;
  Prepared prepared;
  prepared.spec = spec;
  if (t.src.dtype() == DType::kFloat64 || t.src.numel() == 0 || t.weights.numel() == 0 ||
      cuts_border(spec))
    return prepared;
  auto primitive = make(device, spec);
  if (kind_ == Kind::kBackwardWeights && !attrs_.channels_last && layouts.weights_grad != nullptr &&
      layouts.weights_grad->name() == FewPlaces::filter_layout())
    prepared.few_places = FewPlaces::plan(spec);
  if (kind_ == Kind::kBackwardWeights && !attrs_.channels_last && !attrs_.bf16 &&
      !cpu_isa_allows("avx512"))
    prepared.one_channel = OneChannel::plan(spec);
  if (kind_ != Kind::kBackwardWeights && !attrs_.channels_last && layouts.free_result) {
    prepared.few_places_images =
        FewPlacesImages::plan(spec, kind_ == Kind::kForward ? FewPlacesImages::Kind::kForward
                                                            : FewPlacesImages::Kind::kData);
  }
  if (primitive.ok()) {
    prepared.primitive = std::move(primitive).value();
    if (attrs_.bf16) {
      add_rounding(device, prepared);
    } else {
      add_winograd(device, layouts, prepared);
    }
  } else if (primitive.status().code() != StatusCode::kUnimplemented) {
    return std::move(primitive).status();
  }
  return prepared;
}

// With very few output positions, rounding the filter takes longer than it saves; then the loops
// for few positions are used. With more positions, convolutions of rounded numbers are faster than
// those loops.
void ConvPass::add_rounding(CpuDevice& device, Prepared& prepared) const {
  constexpr int64_t kFewestPlaces = 5;
  dnn::Convolution spec = prepared.spec;
  const Dims& dst = spec.dst.dims;
  if (spec.src.dtype != DType::kFloat32 || attrs_.groups != 1 || attrs_.channels_last) return;
  if (ops::dims_product(llvm::ArrayRef(dst).drop_front(2)) < kFewestPlaces) return;
  spec.bf16_factors = true;
  auto made = make(device, spec);
  if (!made.ok()) return;
  prepared.faster = std::move(made).value();
  prepared.few_places.reset();
  prepared.few_places_images.reset();
}

void ConvPass::add_winograd(CpuDevice& device, const Layouts& layouts, Prepared& prepared) const {
  if (attrs_.groups != 1 || attrs_.channels_last) return;
  dnn::Convolution spec = prepared.spec;
  const bool keeps = kind_ == Kind::kForward && layouts.keep_weights;
  const WinogradWeights weights = keeps                             ? WinogradWeights::kPacked
                                  : kind_ == Kind::kBackwardWeights ? WinogradWeights::kGradient
                                                                    : WinogradWeights::kEachRun;
  if (!winograd_pays(spec, weights)) return;
  spec.winograd = true;
  spec.packed_weights = keeps;
  auto made = make(device, spec);
  if (!made.ok()) return;
  prepared.faster = std::move(made).value();
  if (keeps) prepared.kept = std::make_shared<KeptWeights>();
  prepared.few_places.reset();
  prepared.few_places_images.reset();
}

namespace conv_pass {
namespace {

// True for images in whole blocks of the channels that the loops for few places take.
bool is_blocked(const Tensor& images) {
  const std::optional<ChannelBlocks> blocks = channel_blocks(images);
  return blocks && blocks->lanes == FewPlaces::lanes() && blocks->padded() == blocks->channels;
}
bool is_filter_layout(const LayoutPtr& layout) {
  return layout != nullptr && layout->name() == FewPlaces::filter_layout();
}

}  // namespace
}  // namespace conv_pass

// Returns false if the tensors have other layouts.
StatusOr<bool> ConvPass::run_few_places(CpuDevice& device, const FewPlaces& pass,
                                        const ConvTensors& t, const LayoutPtr& weights_grad) {
  using namespace conv_pass;
  if (!is_filter_layout(weights_grad) || !is_blocked(t.src) || !is_blocked(t.dst)) return false;
  const Dims dims(t.weights.dims().begin(), t.weights.dims().end());
  MILLRACE_RETURN_IF_ERROR(t.weights.resize(DType::kFloat32, dims, weights_grad));
  pass.run(device, stored<float>(t.src), stored<float>(t.dst), stored<float>(t.weights));
  return true;
}

// Returns false if the tensors have other layouts.
StatusOr<bool> ConvPass::run_one_channel(CpuDevice& device, const OneChannel& pass,
                                         const ConvTensors& t, const LayoutPtr& weights_grad) {
  const bool packed = weights_grad != nullptr;
  if (packed && !OneChannel::writes(*weights_grad)) return false;
  const std::optional<ChannelBlocks> blocks = channel_blocks(t.dst);
  const bool blocked = blocks && blocks->lanes == OneChannel::kLanes;
  if (!blocked && t.dst.layout() != nullptr) return false;
  MILLRACE_RETURN_IF_ERROR(bring_to(device, t.src, nullptr));
  const Dims dims(t.weights.dims().begin(), t.weights.dims().end());
  MILLRACE_RETURN_IF_ERROR(t.weights.resize(DType::kFloat32, dims, weights_grad));
  MILLRACE_RETURN_IF_ERROR(pass.run(device, t.src.data<float>(), stored<float>(t.dst), blocked,
                                    stored<float>(t.weights), packed));
  return true;
}

// Returns false if the tensors have other layouts.
StatusOr<bool> ConvPass::run_few_places_images(CpuDevice& device, const Prepared& prepared,
                                               const ConvTensors& t, const Layouts& layouts,
                                               const Tensor* bias, Tensor* residual) const {
  using namespace conv_pass;
  const bool forward = kind_ == Kind::kForward;
  if (layouts.pack_weights && t.weights.layout() == nullptr && prepared.primitive) {
    MILLRACE_RETURN_IF_ERROR(
        bring_to(device, t.weights, prepared.primitive->layout(dnn::Arg::kWeights)));
  }
  Tensor& images = forward ? t.src : t.dst;
  Tensor& result = forward ? t.dst : t.src;
  if (!is_filter_layout(t.weights.layout()) || !is_blocked(images)) return false;
  if (bias != nullptr &&
      (bias->dtype() != DType::kFloat32 || bias->numel() != t.dst.dim(1) || bias->layout()))
    return false;
  MILLRACE_ASSIGN_OR_RETURN(const LayoutPtr layout,
                            blocks_like(images.layout(), DType::kFloat32, result.dims()));
  MILLRACE_RETURN_IF_ERROR(place_over(device, residual, layout, result));
  MILLRACE_RETURN_IF_ERROR(prepared.few_places_images->run(
      device, stored<float>(images), stored<float>(t.weights),
      bias == nullptr ? nullptr : bias->data<float>(), stored<float>(result)));
  return true;
}

// The weights are not changed: images of another shape may need them as they are.
Status ConvPass::run_kept(CpuDevice& device, const Prepared& prepared, const ConvTensors& t,
                          const Layouts& layouts, const Tensor* bias, Tensor* residual) const {
  KeptWeights& kept = *prepared.kept;
  if (kept.version != weights_version_) {
    MILLRACE_RETURN_IF_ERROR(copy_plain(t.weights, kept.weights));
    MILLRACE_RETURN_IF_ERROR(
        bring_to(device, kept.weights, prepared.faster->layout(dnn::Arg::kWeights)));
    kept.version = weights_version_;
  }
  return run_primitive(device, prepared, {t.src, kept.weights, t.dst}, layouts, bias, residual);
}

Status ConvPass::run_primitive(CpuDevice& device, const Prepared& prepared, const ConvTensors& t,
                               const Layouts& layouts, const Tensor* bias, Tensor* residual) const {
  using dnn::Arg;
  const dnn::Primitive& primitive = *prepared.primitive;
  const dnn::Primitive& runs = prepared.faster ? *prepared.faster : primitive;
  const auto place = [](Tensor& result, const LayoutPtr& layout) {
    const Dims dims(result.dims().begin(), result.dims().end());
    return result.resize(result.dtype(), dims, layout);
  };
  const auto free_layout = [&](Arg arg, const Tensor& result) -> LayoutPtr {
    return layouts.free_result ? result_layout(primitive, arg, result) : nullptr;
  };
  switch (kind_) {
    case Kind::kForward:
      if (layouts.pack_weights && t.weights.layout() == nullptr)
        MILLRACE_RETURN_IF_ERROR(bring_to(device, t.weights, primitive.layout(Arg::kWeights)));
      MILLRACE_RETURN_IF_ERROR(place_over(device, residual, free_layout(Arg::kDst, t.dst), t.dst));
      return runs.run(device, {{Arg::kSrc, t.src},
                               {Arg::kWeights, t.weights},
                               {Arg::kBias, bias == nullptr ? nullptr : bias->raw()},
                               {Arg::kDst, t.dst}});
    case Kind::kBackwardData:
      MILLRACE_RETURN_IF_ERROR(place(t.src, free_layout(Arg::kDiffSrc, t.src)));
      return runs.run(device,
                      {{Arg::kDiffDst, t.dst}, {Arg::kWeights, t.weights}, {Arg::kDiffSrc, t.src}});
    case Kind::kBackwardWeights:
      MILLRACE_RETURN_IF_ERROR(place(t.weights, layouts.weights_grad));
      return runs.run(device,
                      {{Arg::kSrc, t.src}, {Arg::kDiffDst, t.dst}, {Arg::kDiffWeights, t.weights}});
  }
  return Ok();
}

Status ConvPass::run_plain(CpuDevice& device, const dnn::Convolution& spec, const ConvTensors& t,
                           const Tensor* bias, Tensor* residual) const {
  using namespace conv_pass;
  const Tensor* const result = kind_ == Kind::kForward        ? &t.dst
                               : kind_ == Kind::kBackwardData ? &t.src
                                                              : &t.weights;
  for (Tensor* const tensor : {&t.src, &t.weights, &t.dst}) {
    if (tensor != result) MILLRACE_RETURN_IF_ERROR(bring_to(device, *tensor, nullptr));
  }
  Tensor summand;  // the result may share its memory
  if (residual != nullptr) MILLRACE_RETURN_IF_ERROR(copy_plain(*residual, summand));
  MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(t.src.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const src = t.src.data<T>();
    T* const weights = t.weights.data<T>();
    T* const dst = t.dst.data<T>();
    switch (kind_) {
      case Kind::kForward:
        return plain_convolution(device, spec, src, weights, dst);
      case Kind::kBackwardData:
        return plain_convolution_backward_data(device, spec, dst, weights, src);
      case Kind::kBackwardWeights:
        return plain_convolution_backward_weights(device, spec, src, dst, weights);
    }
    return Ok();
  }));
  if (kind_ != Kind::kForward) return Ok();
  if (bias != nullptr)
    MILLRACE_RETURN_IF_ERROR(add_channel_bias(t.dst, *bias, attrs_.channels_last));
  if (residual != nullptr) MILLRACE_RETURN_IF_ERROR(add_images(summand, t.dst));
  return dispatch<FloatTypes>(t.dst.dtype(), [&](auto tag) {
    rectify<typename decltype(tag)::type>(spec, t.dst);
    return Ok();
  });
}

Status ConvPass::run(CpuDevice& device, const ConvTensors& t, const Layouts& layouts,
                     const Tensor* bias, Tensor* residual) {
  if (residual != nullptr &&
      (residual->dtype() != t.dst.dtype() || residual->dims() != t.dst.dims())) {
    return KernelContext::error("ResidualData must match Output {}, found {}", describe(t.dst),
                                describe(*residual));
  }
  llvm::SmallVector<int64_t, 20> key(t.src.dims().begin(), t.src.dims().end());
  key.append(t.weights.dims().begin(), t.weights.dims().end());
  key.append(t.dst.dims().begin(), t.dst.dims().end());
  key.append({static_cast<int64_t>(t.src.dtype()), static_cast<int64_t>(t.weights.dtype()),
              static_cast<int64_t>(t.dst.dtype()), bias != nullptr ? 1 : 0,
              layouts.weights_grad != nullptr ? 1 : 0, residual != nullptr ? 1 : 0});
  MILLRACE_ASSIGN_OR_RETURN(const Prepared* const prepared, cache_.get(key, [&] {
    return prepare(device, t, layouts, bias != nullptr, residual != nullptr);
  }));
  if (conv_pass::must_keep_nan(device, prepared->spec, t, bias, residual)) {
    if (unbounded_ == nullptr) unbounded_ = std::make_shared<ConvPass>(kind_, attrs_);
    Layouts own;
    own.free_result = layouts.free_result;
    MILLRACE_RETURN_IF_ERROR(unbounded_->run(device, t, own, bias, residual));
    conv_pass::bound(device, t.dst, fusion_.alpha);
    return Ok();
  }
  if (prepared->few_places) {
    MILLRACE_ASSIGN_OR_RETURN(
        const bool done, run_few_places(device, *prepared->few_places, t, layouts.weights_grad));
    if (done) return Ok();
  }
  if (prepared->one_channel) {
    MILLRACE_ASSIGN_OR_RETURN(
        const bool done, run_one_channel(device, *prepared->one_channel, t, layouts.weights_grad));
    if (done) return Ok();
  }
  if (prepared->few_places_images) {
    MILLRACE_ASSIGN_OR_RETURN(const bool done,
                              run_few_places_images(device, *prepared, t, layouts, bias, residual));
    if (done) return Ok();
  }
  if (prepared->kept) return run_kept(device, *prepared, t, layouts, bias, residual);
  return prepared->primitive ? run_primitive(device, *prepared, t, layouts, bias, residual)
                             : run_plain(device, prepared->spec, t, bias, residual);
}

Status add_channel_bias(Tensor& images, const Tensor& bias, bool channels_last) {
  const ChannelLayout layout(images.dims(), channels_last);
  if (bias.dtype() != images.dtype() || bias.numel() != layout.channels) {
    return KernelContext::error("Bias must have one element for each channel of {}, found {}",
                                describe(images), describe(bias));
  }
  return dispatch<FloatTypes>(images.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* at = images.data<T>();
    for (int64_t n = 0; n < layout.outer; ++n) {
      for (int64_t c = 0; c < layout.channels; ++c) {
        const T value = bias.data<T>()[c];
        for (int64_t i = 0; i < layout.inner; ++i) at[i] += value;
        at += layout.inner;
      }
    }
    return Ok();
  });
}

Status sum_channels(const Tensor& images, Tensor& sums, bool channels_last) {
  if (images.rank() < 3) return KernelContext::error("expected images, found {}", describe(images));
  const ChannelLayout layout(images.dims(), channels_last);
  if (sums.dtype() != images.dtype() || sums.numel() != layout.channels) {
    return KernelContext::error("Bias must have one element for each channel of {}, found {}",
                                describe(images), describe(sums));
  }
  fill_zero(sums);
  return dispatch<FloatTypes>(images.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* at = images.data<T>();
    for (int64_t n = 0; n < layout.outer; ++n) {
      for (int64_t c = 0; c < layout.channels; ++c) {
        sums.data<T>()[c] += lane_sum<T>(layout.inner, [at](int64_t i) { return at[i]; });
        at += layout.inner;
      }
    }
    return Ok();
  });
}

}  // namespace millrace::kernels
