#include <cmath>
#include <string>
#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace box_coder_kernels {
namespace {

struct BoxCoderAttrs {
  bool encode = true;
  bool normalized = true;
  int64_t axis = 0;
  std::vector<float> variance;
};

// Centre and size of a box.
template <typename T>
struct Centred {
  T x, y, width, height;
  Centred(const T* box, bool normalized) {
    const T extra = normalized ? T{0} : T{1};
    width = box[2] - box[0] + extra;
    height = box[3] - box[1] + extra;
    x = box[0] + width / 2;
    y = box[1] + height / 2;
  }
};

// The centre of a target is its geometric centre, whether or not corners are pixels.
template <typename T>
void encode_boxes(const T* target, const T* prior, const T* variance, bool normalized, T* out) {
  const Centred<T> p(prior, normalized);
  const Centred<T> t(target, normalized);
  out[0] = ((target[0] + target[2]) / 2 - p.x) / p.width / variance[0];
  out[1] = ((target[1] + target[3]) / 2 - p.y) / p.height / variance[1];
  out[2] = std::log(std::fabs(t.width / p.width)) / variance[2];
  out[3] = std::log(std::fabs(t.height / p.height)) / variance[3];
}

template <typename T>
void decode(const T* target, const T* prior, const T* variance, bool normalized, T* out) {
  const Centred<T> p(prior, normalized);
  const T x = variance[0] * target[0] * p.width + p.x;
  const T y = variance[1] * target[1] * p.height + p.y;
  const T width = std::exp(variance[2] * target[2]) * p.width;
  const T height = std::exp(variance[3] * target[3]) * p.height;
  const T extra = normalized ? T{0} : T{1};
  out[0] = x - width / 2;
  out[1] = y - height / 2;
  out[2] = x + width / 2 - extra;
  out[3] = y + height / 2 - extra;
}

Status check_shapes(const KernelContext& ctx, const BoxCoderAttrs& attrs, const Tensor& prior,
                    const Tensor* variance, const Tensor& target) {
  const bool priors_fit = prior.rank() == 2 && prior.dim(1) == 4;
  const bool variance_fits = variance == nullptr || variance->dims() == prior.dims();
  const bool target_fits = attrs.encode ? target.rank() == 2 && target.dim(1) == 4
                                        : target.rank() == 3 && target.dim(2) == 4 &&
                                              target.dim(attrs.axis == 0 ? 1 : 0) == prior.dim(0);
  if (!priors_fit || !variance_fits || !target_fits || prior.dtype() != target.dtype() ||
      (variance != nullptr && variance->dtype() != prior.dtype())) {
    return ctx.error("PriorBox {}, PriorBoxVar {} and TargetBox {} do not match", describe(prior),
                     variance == nullptr ? "(none)" : describe(*variance), describe(target));
  }
  if (!attrs.variance.empty() && attrs.variance.size() != 4)
    return ctx.error("attribute 'variance' must have 4 entries, found {}", attrs.variance.size());
  return Ok();
}

template <typename T>
void code_all(const BoxCoderAttrs& attrs, const Tensor& prior, const Tensor* variance,
              const Tensor& target, T* out) {
  T fixed[4] = {1, 1, 1, 1};
  for (size_t i = 0; i < attrs.variance.size(); ++i) fixed[i] = static_cast<T>(attrs.variance[i]);
  const int64_t rows = target.dim(0);
  const int64_t columns = attrs.encode ? prior.dim(0) : target.dim(1);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < columns; ++k, out += 4) {
      const int64_t p = attrs.encode || attrs.axis == 0 ? k : i;
      const T* const box = prior.data<T>() + 4 * p;
      const T* const scale = variance != nullptr ? variance->data<T>() + 4 * p : fixed;
      if (attrs.encode) {
        encode_boxes(target.data<T>() + 4 * i, box, scale, attrs.normalized, out);
      } else {
        decode(target.data<T>() + 4 * (i * columns + k), box, scale, attrs.normalized, out);
      }
    }
  }
}

StatusOr<Kernel> box_coder(const KernelSetup& op) {
  const ArgIndex prior_box = op.input("PriorBox");
  const ArgIndex prior_var = op.input("PriorBoxVar");
  const ArgIndex target_box = op.input("TargetBox");
  const ArgIndex output = op.output("OutputBox");
  const BoxCoderAttrs attrs{op.attr<std::string>("code_type") == "encode_center_size",
                            op.attr<bool>("box_normalized"), op.attr<int64_t>("axis"),
                            op.attr<std::vector<float>>("variance")};
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const prior, needed(ctx, prior_box, "PriorBox"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const target, needed(ctx, target_box, "TargetBox"));
    const Tensor* const variance = ctx.find_in(prior_var);
    MILLRACE_RETURN_IF_ERROR(check_shapes(ctx, attrs, *prior, variance, *target));
    return dispatch<FloatTypes>(prior->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      code_all(attrs, *prior, variance, *target, ctx.out(output).data<T>());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace box_coder_kernels

void add_detection_box_coder(KernelRegistry& registry) {
  registry.add("box_coder", box_coder_kernels::box_coder);
}

}  // namespace millrace::kernels
