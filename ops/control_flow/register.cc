#include "ops/control_flow/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_control_flow(OpRegistry& registry) {
  add_block_ops(registry);
  add_assign_ops(registry);
  add_array_ops(registry);
  add_rank_table_ops(registry);
  add_branch_ops(registry);
  add_report_ops(registry);
}

}  // namespace millrace::ops
