#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op families of this folder, one per file.
void add_rpc_ops(OpRegistry& registry);
void add_server_ops(OpRegistry& registry);
void add_slice_ops(OpRegistry& registry);
void add_id_ops(OpRegistry& registry);
void add_sparse_table_ops(OpRegistry& registry);
void add_dgc_ops(OpRegistry& registry);

}  // namespace millrace::ops
