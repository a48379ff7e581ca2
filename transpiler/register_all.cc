#include "transpiler/register_all.h"

#include "transpiler/distribute/distribute_pass.h"
#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/fusion/fusions.h"
#include "transpiler/parallel/parallel.h"
#include "transpiler/passes/passes.h"
#include "transpiler/upgrade/upgrade.h"

namespace millrace::transpiler {

void register_all_passes(PassRegistry& registry) {
  register_add_feed_fetch(registry);
  register_append_backward(registry);
  register_canonicalize(registry);
  register_data_parallel(registry);
  register_distribute(registry);
  register_distribution_passes(registry);
  register_extract_forward(registry);
  register_fold_shape_constants(registry);
  register_fusions(registry);
  register_infer_shapes(registry);
  register_minimize(registry);
  register_prune(registry);
  register_remove_dead_ops(registry);
  register_remove_feed_fetch(registry);
  register_remove_unused_blocks(registry);
  register_remove_unused_vars(registry);
  register_rename(registry);
  register_set_is_test(registry);
  register_strip_debug(registry);
  register_sync_batch_norm(registry);
  register_upgrades(registry);
}

}  // namespace millrace::transpiler
