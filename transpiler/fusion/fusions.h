#pragma once

#include "transpiler/pass_registry.h"

/// Passes that make a program faster without changing what it computes, one per file; the file has
/// the name of the pass with underscores. The executor runs them on its own copy of a program
/// (executor/optimize.h), so all of them have the option `keep`: vars whose values must be
/// available after a run.
namespace millrace::transpiler {

void register_accumulate_gradients(PassRegistry& passes);
void register_drop_shape_inputs(PassRegistry& passes);
void register_fold_constants(PassRegistry& passes);
void register_fuse_attention(PassRegistry& passes);
void register_fuse_conv(PassRegistry& passes);
void register_fuse_elementwise(PassRegistry& passes);
void register_fuse_embedding(PassRegistry& passes);
void register_fuse_fc(PassRegistry& passes);
void register_fuse_norm(PassRegistry& passes);
void register_fuse_patterns(PassRegistry& passes);
void register_join_embeddings(PassRegistry& passes);
void register_join_moves(PassRegistry& passes);
void register_lower_products(PassRegistry& passes);
void register_merge_updates(PassRegistry& passes);
void register_share_gradients(PassRegistry& passes);
void register_share_results(PassRegistry& passes);
void register_split_gradients(PassRegistry& passes);

/// Adds all of them.
void register_fusions(PassRegistry& passes);

}  // namespace millrace::transpiler
