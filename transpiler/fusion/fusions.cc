#include "transpiler/fusion/fusions.h"

namespace millrace::transpiler {

void register_fusions(PassRegistry& passes) {
  register_accumulate_gradients(passes);
  register_drop_shape_inputs(passes);
  register_fuse_attention(passes);
  register_fuse_conv(passes);
  register_fuse_elementwise(passes);
  register_fuse_fc(passes);
  register_fuse_norm(passes);
  register_lower_products(passes);
  register_share_gradients(passes);
  register_share_results(passes);
}

}  // namespace millrace::transpiler
