#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {

const Converters& all_converters() {
  static const Converters& table = *[] {
    auto* const made = new Converters;
    add_activation_ops(*made);
    add_control_flow_ops(*made);
    add_conv_ops(*made);
    add_detection_ops(*made);
    add_elementwise_ops(*made);
    add_embedding_ops(*made);
    add_fill_ops(*made);
    add_formula_gradient_ops(*made);
    add_formula_ops(*made);
    add_gradient_ops(*made);
    add_index_ops(*made);
    add_loss_ops(*made);
    add_matmul_ops(*made);
    add_norm_ops(*made);
    add_optimizer_ops(*made);
    add_pool_ops(*made);
    add_quant_ops(*made);
    add_reduce_ops(*made);
    add_resize_ops(*made);
    add_sequence_ops(*made);
    add_shape_ops(*made);
    return made;
  }();
  return table;
}

}  // namespace millrace::interchange::pir
