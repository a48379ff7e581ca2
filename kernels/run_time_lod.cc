#include "kernels/run_time_lod.h"

#include <algorithm>
#include <array>

namespace millrace::kernels {
namespace {

struct Rule {
  llvm::StringLiteral op;
  llvm::StringLiteral from;
};

// By op type. fused_conv2d runs in place of conv2d.
constexpr std::array kRules = {
    Rule{"abs", ""},
    Rule{"addmm", "Input"},
    Rule{"affine_grid", "Theta"},
    Rule{"bilinear_tensor_product", "X"},
    Rule{"check_finite_and_unscale", ""},
    Rule{"conv2d", ""},
    Rule{"conv2d_transpose", ""},
    Rule{"conv3d", ""},
    Rule{"conv3d_transpose", ""},
    Rule{"crop", ""},
    Rule{"crop_tensor", "X"},
    Rule{"depthwise_conv2d", ""},
    Rule{"depthwise_conv2d_transpose", ""},
    Rule{"fill_diagonal", ""},
    Rule{"frobenius_norm", ""},
    Rule{"fused_conv2d", ""},
    Rule{"gather_tree", ""},
    Rule{"hierarchical_sigmoid", "X"},
    Rule{"index_sample", "Index"},
    Rule{"isfinite_v2", ""},
    Rule{"isinf_v2", ""},
    Rule{"isnan_v2", ""},
    Rule{"kldiv_loss", ""},
    Rule{"matmul_v2", ""},
    Rule{"max_pool2d_with_index", ""},
    Rule{"modified_huber_loss", ""},
    Rule{"multiplex", ""},
    Rule{"mv", "X"},
    Rule{"norm", ""},
    Rule{"partial_concat", "X"},
    Rule{"partial_sum", "X"},
    Rule{"rank_loss", ""},
    Rule{"reduce_all", ""},
    Rule{"reduce_any", ""},
    Rule{"reduce_max", ""},
    Rule{"reduce_mean", ""},
    Rule{"reduce_min", ""},
    Rule{"reduce_prod", ""},
    Rule{"reduce_sum", ""},
    Rule{"sampling_id", "X"},
    Rule{"shuffle_channel", ""},
    Rule{"strided_slice", "Input"},
    Rule{"take_along_axis", ""},
    Rule{"unbind", "X"},
};

}  // namespace

std::optional<llvm::StringRef> run_time_lod(llvm::StringRef op_type) {
  const auto* const found =
      std::lower_bound(kRules.begin(), kRules.end(), op_type,
                       [](const Rule& rule, llvm::StringRef type) { return rule.op < type; });
  if (found == kRules.end() || found->op != op_type) return std::nullopt;
  return llvm::StringRef(found->from);
}

}  // namespace millrace::kernels
