#include "kernels/run_time_lod.h"

#include <algorithm>
#include <array>

namespace millrace::kernels {
namespace {

struct Rule {
  llvm::StringLiteral op;
  llvm::StringLiteral output;  // "": all outputs
  llvm::StringLiteral from;
};

// By op type. fused_conv2d runs in place of conv2d.
constexpr std::array kRules = {
    Rule{"abs", "", ""},
    Rule{"accuracy", "Accuracy", "Out"},
    Rule{"addmm", "", "Input"},
    Rule{"affine_channel_grad", "Bias@GRAD", ""},
    Rule{"affine_channel_grad", "Scale@GRAD", ""},
    Rule{"affine_channel_grad", "X@GRAD", ""},
    Rule{"affine_grid", "", "Theta"},
    Rule{"affine_grid_grad", "", ""},
    Rule{"auc", "StatNegOut", "StatNeg"},
    Rule{"auc", "StatPosOut", "StatPos"},
    Rule{"batch_norm", "MeanOut", "Mean"},
    Rule{"batch_norm", "VarianceOut", "Variance"},
    Rule{"batch_norm_grad", "", ""},
    Rule{"bilinear_tensor_product", "", "X"},
    Rule{"bilinear_tensor_product_grad", "", ""},
    Rule{"bmm_grad", "", ""},
    Rule{"check_finite_and_unscale", "", ""},
    Rule{"conv2d", "", ""},
    Rule{"conv2d_transpose", "", ""},
    Rule{"conv3d", "", ""},
    Rule{"conv3d_transpose", "", ""},
    Rule{"crop", "", ""},
    Rule{"crop_grad", "", ""},
    Rule{"crop_tensor", "", "X"},
    Rule{"crop_tensor_grad", "", ""},
    Rule{"cumsum", "", "X"},
    Rule{"depthwise_conv2d", "", ""},
    Rule{"depthwise_conv2d_transpose", "", ""},
    Rule{"expand_grad", "", ""},
    Rule{"fill_diagonal", "", ""},
    Rule{"frobenius_norm", "", ""},
    Rule{"fsp_grad", "", ""},
    Rule{"fused_conv2d", "", ""},
    Rule{"gather_nd", "", "X"},
    Rule{"gather_tree", "", ""},
    Rule{"gru_unit_grad", "", ""},
    Rule{"hierarchical_sigmoid", "", "X"},
    Rule{"hierarchical_sigmoid_grad", "Bias@GRAD", ""},
    Rule{"hierarchical_sigmoid_grad", "W@GRAD", ""},
    Rule{"hinge_loss_grad", "", ""},
    Rule{"huber_loss_grad", "X@GRAD", ""},
    Rule{"huber_loss_grad", "Y@GRAD", "Out@GRAD"},
    Rule{"im2sequence_grad", "", ""},
    Rule{"index_sample", "", "Index"},
    Rule{"instance_norm_grad", "", ""},
    Rule{"isfinite_v2", "", ""},
    Rule{"isinf_v2", "", ""},
    Rule{"isnan_v2", "", ""},
    Rule{"kldiv_loss", "", ""},
    Rule{"l1_norm_grad", "", ""},
    Rule{"logsumexp_grad", "", ""},
    Rule{"lrn_grad", "", ""},
    Rule{"matmul_grad", "", ""},
    Rule{"matmul_v2", "", ""},
    Rule{"max_pool2d_with_index", "", ""},
    Rule{"modified_huber_loss", "", ""},
    Rule{"multiplex", "", ""},
    Rule{"multiplex_grad", "", ""},
    Rule{"mv", "", "X"},
    Rule{"nll_loss_grad", "", ""},
    Rule{"norm", "", ""},
    Rule{"pad_grad", "", ""},
    Rule{"partial_concat", "", "X"},
    Rule{"partial_sum", "", "X"},
    Rule{"prelu_grad", "", ""},
    Rule{"put_along_axis_grad", "Value@GRAD", "Index"},
    Rule{"rank_loss", "", ""},
    Rule{"rank_loss_grad", "", ""},
    Rule{"reduce_all", "", ""},
    Rule{"reduce_any", "", ""},
    Rule{"reduce_max", "", ""},
    Rule{"reduce_mean", "", ""},
    Rule{"reduce_min", "", ""},
    Rule{"reduce_prod", "", ""},
    Rule{"reduce_sum", "", ""},
    Rule{"reshape", "Out", "X"},
    Rule{"reshape2", "Out", "X"},
    Rule{"reshape_grad", "", ""},
    Rule{"rnn", "State", ""},
    Rule{"sampling_id", "", "X"},
    Rule{"scatter_grad", "", ""},
    Rule{"scatter_nd_add_grad", "", ""},
    Rule{"shuffle_channel", "", ""},
    Rule{"slice_grad", "", ""},
    Rule{"softmax_with_cross_entropy_grad", "", ""},
    Rule{"spp_grad", "", ""},
    Rule{"stack_grad", "", ""},
    Rule{"strided_slice", "", "Input"},
    Rule{"stright_throuth_estimator_grad", "", ""},
    Rule{"take_along_axis", "", ""},
    Rule{"tile_grad", "", ""},
    Rule{"top_k_grad", "", ""},
    Rule{"transpose2_grad", "", ""},
    Rule{"transpose_grad", "", ""},
    Rule{"unbind", "", "X"},
    Rule{"where_grad", "X@GRAD", "Condition"},
    Rule{"where_grad", "Y@GRAD", "X"},
    Rule{"yolov3_loss_grad", "", ""},
};

}  // namespace

std::optional<llvm::StringRef> run_time_lod(llvm::StringRef op_type, llvm::StringRef output) {
  const auto* rule =
      std::lower_bound(kRules.begin(), kRules.end(), op_type,
                       [](const Rule& known, llvm::StringRef type) { return known.op < type; });
  for (; rule != kRules.end() && rule->op == op_type; ++rule) {
    if (rule->output.empty() || rule->output == output) return llvm::StringRef(rule->from);
  }
  return std::nullopt;
}

}  // namespace millrace::kernels
