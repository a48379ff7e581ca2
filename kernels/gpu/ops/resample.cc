#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/nn/interp_taps.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/gpu/ops/taps.h"
#include "kernels/registry.h"

// Interpolations, and pad2d and pad3d.
namespace millrace::gpu {
namespace resample {
namespace {

// An image [parts, size..., lanes] and the taps of another one.
struct Resampling {
  int64_t lanes = 1;
  TapDims dims;
  Dims result;  // dims of the other image, as a tensor
};

// Runs an op that makes an image from another, or its gradient.
class Resampler {
 public:
  // \param none  what results that take nothing are; gradients are 0 there
  Resampler(const KernelSetup& op, float none)
      : device_(device_of(op)),
        x_(op.input("X")),
        out_(op.output("Out")),
        dout_(op.input("Out@GRAD")),
        dx_(op.output("X@GRAD")),
        is_gradient_(!op.output("Out")),
        none_(none),
        tables_(op) {}

  // \param make  returns StatusOr<Resampling> for X
  template <typename Make>
  Status run(const KernelContext& ctx, const Make& make) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed_here(ctx, x_, "X"));
    const Tensor* from = x;
    Tensor* to = nullptr;
    if (is_gradient_) {
      MILLRACE_ASSIGN_OR_RETURN(from, needed_here(ctx, dout_, "Out@GRAD"));
      MILLRACE_ASSIGN_OR_RETURN(to, output_like(ctx, dx_, *x));
    } else {
      to = &ctx.out(out_);
    }
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({x, from, to}));
    const Tensor& image = is_gradient_ ? *from : *to;
    Dims key(x->dims().begin(), x->dims().end());
    key.append(image.dims().begin(), image.dims().end());
    MILLRACE_ASSIGN_OR_RETURN(const auto sides, tables_.get(key, [&]() -> StatusOr<TapDims> {
      MILLRACE_ASSIGN_OR_RETURN(Resampling made, make(ctx, *x));
      if (image.dims() != llvm::ArrayRef<int64_t>(made.result))
        return refuse("X {} and an image {}", describe(*x), describe(image));
      lanes_ = made.lanes;
      for (Taps& taps : made.dims) {
        if (is_gradient_) taps = transposed(taps);
      }
      return std::move(made.dims);
    }));
    return each(device_,
                SumTaps{{sides[0], sides[1], sides[2]}, lanes_, floats(from), floats(to), none_},
                to->numel());
  }

 private:
  Device& device_;
  ArgIndex x_, out_, dout_, dx_;
  bool is_gradient_;
  float none_;
  int64_t lanes_ = 1;  // as long as the tables are the same
  TapTables tables_;
};

// The CPU kernel's plan.
StatusOr<Resampling> interpolated(const KernelContext& ctx, const kernels::InterpAttrs& attrs,
                                  const Tensor& x) {
  const StatusOr<kernels::InterpPlan> plan = kernels::plan_interp(ctx, attrs, x);
  if (!plan.ok()) return refuse("{}", plan.status().message());
  Resampling made;
  made.lanes = plan->lanes;
  made.result = kernels::interp_dims(*plan, attrs, x);
  for (size_t i = 0; i < 3; ++i) {
    const kernels::InterpAxis& axis = plan->axes[i];
    Taps& taps = made.dims[i];
    taps.size = axis.in;
    for (size_t k = 0; k < axis.index.size(); ++k) {
      taps.add(axis.index[k], axis.weight[k]);
      if ((k + 1) % static_cast<size_t>(axis.taps) == 0) taps.finish();
    }
  }
  return made;
}

StatusOr<Kernel> interp(const KernelSetup& op) {
  if (op.input("OutSize") || op.inputs("SizeTensor").count > 0 || op.input("Scale"))
    return refuse("sizes given by tensors");
  const auto resampler = std::make_shared<Resampler>(op, 0.0F);
  return Kernel([resampler, attrs = kernels::read_interp_attrs(op)](const KernelContext& ctx) {
    return resampler->run(ctx, [&attrs](const KernelContext& call, const Tensor& x) {
      return interpolated(call, attrs, x);
    });
  });
}

struct PadAttrs {
  std::vector<int64_t> paddings;
  std::string mode;
  float value = 0;
  bool last = false;
  size_t spatial = 2;
};

// The position in the image that a position of the padded one copies; -1: none.
int64_t copied_position(const std::string& mode, int64_t at, int64_t size) {
  if (at >= 0 && at < size) return at;
  if (mode == "constant") return -1;
  if (mode == "reflect") return at < 0 ? -at : 2 * size - 2 - at;
  if (mode == "circular") return (at % size + size) % size;
  return at < 0 ? 0 : size - 1;
}

StatusOr<Resampling> plan_pad(const PadAttrs& attrs, const Tensor& x) {
  if (x.rank() != attrs.spatial + 2 || attrs.paddings.size() != 2 * attrs.spatial)
    return refuse("X {} with {} paddings", describe(x), attrs.paddings.size());
  Resampling made;
  made.result.assign(x.dims().begin(), x.dims().end());
  made.lanes = attrs.last ? x.dims().back() : 1;
  const size_t missing = 3 - attrs.spatial;
  for (size_t i = 0; i < missing; ++i) made.dims[i] = Taps::one();
  for (size_t i = 0; i < attrs.spatial; ++i) {
    // pad3d lists the last dim first, pad2d the first one
    const size_t pair = attrs.spatial == 3 ? 2 - i : i;
    const int64_t before = attrs.paddings[2 * pair];
    int64_t& extent = made.result[(attrs.last ? 1 : 2) + i];
    Taps& taps = made.dims[missing + i];
    taps.size = extent;
    extent += before + attrs.paddings[2 * pair + 1];
    if (taps.size < 1 || extent < 0) return refuse("X {}", describe(x));
    for (int64_t k = 0; k < extent; ++k) {
      const int64_t at = copied_position(attrs.mode, k - before, taps.size);
      // the CPU kernel reports borders that the mode cannot fill
      if (at >= taps.size || at < -1 || (at < 0 && attrs.mode != "constant"))
        return refuse("a border of {} around {}", before, describe(x));
      if (at >= 0) taps.add(at, 1.0);
      taps.finish();
    }
  }
  return made;
}

StatusOr<Kernel> pad(const KernelSetup& op) {
  if (op.input("Paddings")) return refuse("paddings given by a tensor");
  PadAttrs attrs;
  attrs.spatial = op.def().find_attr("value") != nullptr ? 3 : 2;
  attrs.paddings = op.attr<std::vector<int64_t>>("paddings");
  attrs.mode = op.attr<std::string>("mode");
  attrs.value = op.attr<float>(attrs.spatial == 3 ? "value" : "pad_value");
  attrs.last = op.attr<std::string>("data_format").back() == 'C';
  const bool gradient = !op.output("Out");
  const auto resampler = std::make_shared<Resampler>(op, gradient ? 0.0F : attrs.value);
  return Kernel([resampler, attrs](const KernelContext& ctx) {
    return resampler->run(ctx, [&attrs](const KernelContext& /*call*/, const Tensor& x) {
      return plan_pad(attrs, x);
    });
  });
}

}  // namespace
}  // namespace resample

void add_resample(KernelRegistry& registry) {
  using namespace resample;
  for (const char* const method : {"nearest", "linear", "bilinear", "trilinear", "bicubic"}) {
    for (const char* const version : {"_interp", "_interp_v2"}) {
      const std::string type = std::string(method) + version;
      registry.add(type, interp);
      registry.add(type + "_grad", interp);
    }
  }
  for (const char* const type : {"pad2d", "pad3d", "pad2d_grad", "pad3d_grad"})
    registry.add(type, pad);
}

}  // namespace millrace::gpu
