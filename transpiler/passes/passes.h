#pragma once

#include "transpiler/pass_registry.h"

/// The general passes, one per file; the file has the name of the pass with underscores. Those that
/// make a training program are together in training.h.
/// `transpile-program --help` and docs/passes.md list them with their options.
namespace millrace::transpiler {

void register_add_feed_fetch(PassRegistry& passes);
void register_append_backward(PassRegistry& passes);
void register_canonicalize(PassRegistry& passes);
void register_extract_forward(PassRegistry& passes);
void register_fold_shape_constants(PassRegistry& passes);
void register_infer_shapes(PassRegistry& passes);
void register_minimize(PassRegistry& passes);
void register_prune(PassRegistry& passes);
void register_remove_dead_ops(PassRegistry& passes);
void register_remove_feed_fetch(PassRegistry& passes);
void register_remove_unused_blocks(PassRegistry& passes);
void register_remove_unused_vars(PassRegistry& passes);
void register_rename(PassRegistry& passes);
void register_set_is_test(PassRegistry& passes);
void register_strip_debug(PassRegistry& passes);

}  // namespace millrace::transpiler
