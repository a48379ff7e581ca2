#include "transpiler/fusion/fusions.h"

namespace millrace::transpiler {

void register_fusions(PassRegistry& passes) {
  register_accumulate_gradients(passes);
  register_drop_shape_inputs(passes);
  register_fold_constants(passes);
  register_fuse_attention(passes);
  register_fuse_conv(passes);
  register_fuse_elementwise(passes);
  register_fuse_embedding(passes);
  register_fuse_fc(passes);
  register_fuse_norm(passes);
  register_fuse_patterns(passes);
  register_join_embeddings(passes);
  register_join_moves(passes);
  register_lower_products(passes);
  register_merge_updates(passes);
  register_share_gradients(passes);
  register_share_results(passes);
  register_split_gradients(passes);
}

}  // namespace millrace::transpiler
