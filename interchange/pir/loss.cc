// Losses and metrics.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kLossRows[] = {
    {"accuracy", "accuracy", "Out Indices Label", "", "Accuracy Correct Total"},
    {"bce_loss", "bce_loss", "X Label", "", "Out"},
    {"cvm", "cvm", "X CVM", "use_cvm:bool", "Y"},
    {"hinge_loss", "hinge_loss", "Logits Labels", "", "Loss"},
    {"hierarchical_sigmoid", "hsigmoid_loss", "X Label W Bias? PathTable? PathCode?",
     "num_classes:i32 is_sparse:bool", "Out PreOut W_Out"},
    {"huber_loss", "huber_loss", "X Y", "delta:f32", "Out Residual"},
    {"kldiv_loss", "kldiv_loss", "X Target", "reduction:str log_target:bool=false", "Loss"},
    {"label_smooth", "label_smooth", "X PriorDist?", "epsilon:f32", "Out"},
    {"log_loss", "log_loss", "Predicted Labels", "epsilon:f32", "Loss"},
    {"nll_loss", "nll_loss", "X Label Weight?", "ignore_index:i64 reduction:str",
     "Out Total_weight"},
    {"sigmoid_cross_entropy_with_logits", "sigmoid_cross_entropy_with_logits", "X Label -",
     "normalize:bool ignore_index:i32", "Out"},
    {"softmax_with_cross_entropy", "cross_entropy_with_softmax", "Logits Label",
     "soft_label:bool use_softmax:bool numeric_stable_mode:bool ignore_index:i32 axis:i32",
     "Softmax Loss"},
    {"warpctc", "warpctc", "Logits Label LogitsLength? LabelLength?",
     "blank:i32 norm_by_times:bool", "Loss WarpCTCGrad"},
};

}  // namespace

void add_loss_ops(Converters& table) {
  for (const Row& row : kLossRows) table.rows[row.type] = &row;
}

}  // namespace millrace::interchange::pir
