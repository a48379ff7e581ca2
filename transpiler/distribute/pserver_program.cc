#include "transpiler/distribute/pserver_program.h"

#include "framework/base/errors.h"
#include "framework/names.h"
#include "transpiler/distribute/pserver_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Declares the params and gradients held here, and the gradients that each trainer sends.
void declare_owned(PserverBuilder& b) {
  Block& root = b.root();
  for (const OwnedSlice& owned : b.job.owned[b.server]) {
    const ParamGrad& pair = b.job.pairs[owned.pair];
    VarSpec spec = plain_spec(pair.param_kind, pair.dtype, pair.slices[owned.slice].slice.dims);
    spec.persistable = true;
    if (!pair.is_sliced() && pair.lod_level != 0) spec.lod_level = pair.lod_level;
    root.declare(pair.slices[owned.slice].param, std::move(spec));
  }
  for (const OwnedSlice& owned : b.job.owned[b.server]) {
    const ParamGrad& pair = b.job.pairs[owned.pair];
    const PlacedSlice& slice = pair.slices[owned.slice];
    VarSpec spec = plain_spec(pair.grad_kind, pair.dtype, slice.grad_dims);
    if (b.job.merges_per_trainer()) {
      for (int64_t trainer = 0; trainer < b.job.trainers; ++trainer) {
        b.received.push_back(names::trainer(slice.server_grad, trainer));
        root.declare(b.received.back(), spec);
      }
    } else {
      b.received.push_back(slice.server_grad);
    }
    spec.persistable = true;
    root.declare(slice.server_grad, std::move(spec));
  }
}

// Declares the copies of the params that each trainer read last, one per trainer.
void declare_dc_backups(PserverBuilder& b) {
  for (const OwnedSlice& owned : b.job.owned[b.server]) {
    const ParamGrad& pair = b.job.pairs[owned.pair];
    const PlacedSlice& slice = pair.slices[owned.slice];
    for (int64_t trainer = 0; trainer < b.job.trainers; ++trainer) {
      b.root().declare(names::dc_backup(slice.param, trainer),
                       plain_spec(pair.param_kind, pair.dtype, slice.slice.dims));
    }
  }
}

void append_listen_and_serv(PserverBuilder& b) {
  const DistributionJob& job = b.job;
  const auto threads = [](int64_t n) { return static_cast<int32_t>(n); };
  Op& op = b.root().append_op("listen_and_serv");
  op.set_input("X", b.received)
      .set_attr("optimize_blocks", AttrValue::of_blocks(b.optimize_blocks))
      .set_string("endpoint", job.endpoints[b.server])
      .set_int("pserver_id", static_cast<int32_t>(b.server))
      .set_int("Fanin", static_cast<int32_t>(job.trainers))
      .set_int("distributed_mode", job.distributed_mode())
      .set_strings("grad_to_block_id", b.grad_to_block_id)
      .set_strings("sparse_grad_to_param", b.sparse_grad_to_param)
      .set_int("lr_decay_block_id", b.lr_block)
      .set_int("rpc_get_thread_num", threads(job.config.rpc_get_thread_num))
      .set_int("rpc_send_thread_num", threads(job.config.rpc_send_thread_num))
      .set_int("rpc_prefetch_thread_num", threads(job.config.rpc_prefetch_thread_num));
  if (job.table.exists()) op.set_int("checkpint_block_id", b.checkpoint_block);
  if (job.config.enable_dc_asgd) op.set_bool("dc_asgd", true);
  if (!b.prefetch_to_block_id.empty())
    op.set_strings("prefetch_var_name_to_block_id", b.prefetch_to_block_id);
  finish(op, role::kForward);
}

}  // namespace

StatusOr<std::unique_ptr<Program>> make_pserver_program(const Program& main,
                                                        const PassContext& context,
                                                        const DistributionJob& job, size_t server) {
  if (job.config.enable_dc_asgd && job.sync()) {
    return InvalidArgument(
        "enable_dc_asgd needs sync_mode false: delay compensation is for asynchronous training");
  }
  PserverBuilder b(main, context, job, server);
  declare_owned(b);
  if (job.config.enable_dc_asgd) declare_dc_backups(b);
  MILLRACE_RETURN_IF_ERROR(build_lr_block(b));
  const auto parent = static_cast<int32_t>(b.program->block_count()) - 1;
  MILLRACE_RETURN_IF_ERROR(build_optimize_blocks(b));
  if (job.table.exists()) MILLRACE_RETURN_IF_ERROR(build_table_blocks(b, parent));
  if (b.optimize_blocks.empty()) {
    b.optimize_blocks.push_back(
        b.program->add_block(static_cast<int32_t>(b.program->block_count()) - 1).index());
  }
  append_listen_and_serv(b);
  return std::move(b.program);
}

}  // namespace millrace::transpiler
