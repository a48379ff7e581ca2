#include "transpiler/distribute/federated_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

int32_t trainer_of(const DistributionJob& job) {
  return static_cast<int32_t>(job.arguments.trainer_id);
}

// Attributes that send and recv of one parameter share. sync_mode is negated, as in the original.
void finish_transfer(Op& op, const DistributionJob& job, const ParamGrad& pair) {
  const PlacedSlice& placed = pair.slices.front();
  op.set_strings("epmap", {job.endpoints[static_cast<size_t>(placed.endpoint)]})
      .set_bool("sync_mode", !job.sync())
      .set_strings("op_role_var", {pair.param, placed.grad});
  finish(op, role::kRpc);
}

}  // namespace

Status federated_recv(Program& main, PassContext& context, DistributionJob& job) {
  (void)context;
  job.recv = main.clone();
  Block& block = job.recv->root();
  for (Op* const op : block.op_vector()) block.erase(*op);
  std::vector<std::string> params;
  for (const ParamGrad& pair : job.pairs) {
    Op& recv = block.append_op("recv").set_output("Out", pair.param);
    recv.set_int("trainer_id", trainer_of(job));
    finish_transfer(recv, job, pair);
    params.push_back(pair.param);
  }
  if (job.sync()) {
    Op& barrier = block.append_op("fetch_barrier").set_output("Out", params);
    barrier.set_strings("endpoints", job.endpoints).set_int("trainer_id", trainer_of(job));
    finish(barrier, role::kRpc);
  }
  return Ok();
}

Status federated_send(Program& main, PassContext& context, DistributionJob& job) {
  (void)context;
  Block& block = main.root();
  job.first_send = block.op_count();
  std::vector<std::string> sent;
  for (ParamGrad& pair : job.pairs) {
    pair.send_control = job.controls.create(block);
    Op& send = block.append_op("send").set_input("X", pair.slices.front().grad);
    send.set_output("Out", pair.send_control);
    finish_transfer(send, job, pair);
    sent.push_back(pair.send_control);
  }
  if (job.sync()) {
    Op& barrier = block.append_op("send_barrier").set_input("X", sent);
    barrier.set_output("Out", job.controls.create(block))
        .set_strings("endpoints", job.endpoints)
        .set_bool("sync_mode", true)
        .set_int("trainer_id", trainer_of(job));
    finish(barrier, role::kRpc);
  }
  return Ok();
}

}  // namespace millrace::transpiler
