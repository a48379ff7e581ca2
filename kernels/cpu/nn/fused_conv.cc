#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/nn/conv_pass.h"
#include "kernels/cpu/nn/fused_parts.h"
#include "kernels/cpu/seen_mark.h"
#include "kernels/registry.h"

// fused_conv2d: a convolution for inference with bias, batch_norm, another summand and a rectifier.
// The normalization is folded into a copy of the filter and into the bias.
namespace millrace::kernels {
namespace {

// Layout without elements: the filter was folded into a convolution and no other op uses it.
class Released final : public Layout {
 public:
  [[nodiscard]] int64_t bytes() const override { return 0; }
  [[nodiscard]] bool same_as(const Layout& other) const override { return this == &other; }
  Status to_plain(const std::byte* /*from*/, std::byte* /*to*/) const override {
    return Status(StatusCode::kExecution,
                  "the elements of this filter were released when it was folded into a convolution")
        .with_hint("read the parameters before the program is prepared, or keep them");
  }
  [[nodiscard]] std::string name() const override { return "given up to fused_conv2d"; }
  [[nodiscard]] bool is_private() const override { return true; }
};

struct FinalFunction {
  dnn::Rectifier rectifier = dnn::Rectifier::kNone;
  float alpha = 0;
};

// From the attributes of our passes or, if they set none, from those of the original's.
StatusOr<FinalFunction> final_function(const KernelSetup& op) {
  const auto own = op.attr<std::string>("activation");
  const auto other = op.attr<std::string>("fuse_activation");
  if (other.empty()) return FinalFunction{rectifier_of(own), op.attr<float>("alpha")};
  if (!own.empty()) return op.error("attributes 'activation' and 'fuse_activation' are both set");
  const auto alpha = op.attr<float>("fuse_alpha");
  if (other != "relu6") return FinalFunction{rectifier_of(other), alpha};
  if (alpha != 0) return op.error("attribute 'fuse_alpha' of relu6 is {}, expected 0", alpha);
  return FinalFunction{dnn::Rectifier::kRelu6, op.attr<float>("fuse_beta")};
}

class FusedConv {
 public:
  FusedConv(const KernelSetup& op, FinalFunction last)
      : input_(op.input("Input")),
        filter_(op.input("Filter")),
        norm_(op),
        residual_(op.attr<bool>("fuse_residual_connection") ? op.input("ResidualData")
                                                            : ArgIndex{}),
        output_(op.output("Output")),
        release_(op.attr<bool>("release_filter")),
        layouts_{!channels_last(op, "data_format"), op.is_persistable(filter_), nullptr},
        pass_(ConvPass::Kind::kForward, read_conv_attrs(op), {last.rectifier, last.alpha}) {
    for (const ArgIndex arg : {input_, filter_, residual_}) op.accept_layout(arg);
  }

  Status run(const KernelContext& ctx) {
    Tensor& out = ctx.out(output_);
    if (out.numel() == 0) return Ok();
    Tensor* const residual =
        ctx.find_in(residual_) == nullptr ? nullptr : &ctx.stored_in(residual_);
    Tensor& filter = ctx.stored_in(filter_);
    Tensor& input = ctx.stored_in(input_);
    if (!norm_) {
      // marked by another kernel that uses the same filter
      if (filter.layout() != nullptr && filter.layout()->is_private())
        MILLRACE_RETURN_IF_ERROR(bring_to(ctx.device(), filter, nullptr));
      return pass_.run(ctx.device(), {input, filter, out}, layouts_, norm_.bias(ctx), residual);
    }
    if (filter.dtype() != DType::kFloat32) {
      return {StatusCode::kUnimplemented,
              "fused_conv2d with a normalization is for f32, found " + describe(filter)};
    }
    MILLRACE_RETURN_IF_ERROR(fold(ctx, filter));
    ConvPass::Layouts own = layouts_;
    own.pack_weights = true;
    own.keep_weights = true;
    return pass_.run(ctx.device(), {input, folded_, out}, own, &folded_bias_, residual);
  }

 private:
  // The bias is recomputed in every run. The filter is multiplied again only if the factors or the
  // filter have changed.
  Status fold(const KernelContext& ctx, Tensor& filter) {
    if (filter.rank() == 0) return ctx.error("Filter must have dims, found {}", describe(filter));
    const int64_t n = filter.dim(0);
    std::vector<float> factors;
    MILLRACE_RETURN_IF_ERROR(norm_.fold(ctx, n, factors, folded_bias_));
    const bool same = seen_ != nullptr && filter.layout() == seen_ && factors_ == factors;
    factors_ = std::move(factors);
    return same ? Ok() : multiply(ctx.device(), filter);
  }

  Status multiply(CpuDevice& device, Tensor& filter) {
    pass_.forget_weights();
    MILLRACE_RETURN_IF_ERROR(bring_to(device, filter, nullptr));
    MILLRACE_RETURN_IF_ERROR(release_ ? take(filter) : copy_plain(filter, folded_));
    const int64_t row = folded_.numel() / std::max<int64_t>(folded_.dim(0), 1);
    float* at = folded_.data<float>();
    for (const float factor : factors_) {
      for (int64_t i = 0; i < row; ++i) at[i] *= factor;
      at += row;
    }
    return release_ ? Ok() : mark(filter);
  }

  // Moves the filter's memory into folded_; the filter has no elements afterwards.
  Status take(Tensor& filter) {
    const Dims dims(filter.dims().begin(), filter.dims().end());
    const std::byte* const place = filter.raw();
    // gets other memory only if another tensor shares the old one and so keeps it
    MILLRACE_RETURN_IF_ERROR(filter.resize(DType::kFloat32, dims));
    if (filter.raw() != place)
      std::memcpy(filter.raw(), place, static_cast<size_t>(filter.bytes()));
    folded_ = std::move(filter);
    seen_ = std::make_shared<const Released>();
    return filter.resize(DType::kFloat32, dims, seen_);
  }

  Status mark(Tensor& filter) {
    MILLRACE_ASSIGN_OR_RETURN(seen_, mark_seen(filter));
    return Ok();
  }

  ArgIndex input_, filter_;
  FusedNorm norm_;
  ArgIndex residual_, output_;
  bool release_;
  ConvPass::Layouts layouts_;
  ConvPass pass_;
  LayoutPtr seen_;              ///< mark of the filter that folded_ was computed from
  std::vector<float> factors_;  ///< factors that folded_ was computed with
  Tensor folded_;
  Tensor folded_bias_;
};

StatusOr<Kernel> fused_conv(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const FinalFunction last, final_function(op));
  const auto state = std::make_shared<FusedConv>(op, last);
  return Kernel([state](const KernelContext& ctx) { return state->run(ctx); });
}

}  // namespace

void add_nn_fused_conv(KernelRegistry& registry) {
  registry.add("fused_conv2d", fused_conv);
}

}  // namespace millrace::kernels
