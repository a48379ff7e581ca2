#include "ops/distributed/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_distributed(OpRegistry& registry) {
  add_rpc_ops(registry);
  add_server_ops(registry);
  add_slice_ops(registry);
  add_id_ops(registry);
  add_sparse_table_ops(registry);
  add_dgc_ops(registry);
}

}  // namespace millrace::ops
