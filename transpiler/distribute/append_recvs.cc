#include "framework/base/errors.h"
#include "transpiler/distribute/emit.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

void append_recv(Block& block, DistributionJob& job, const ParamGrad& pair) {
  const bool at_run_time = job.config.runtime_split_send_recv;
  std::vector<std::string> outputs;
  std::vector<std::string> endpoints;
  std::vector<std::string> received_names;
  for (const PlacedSlice& placed : pair.slices) {
    endpoints.push_back(job.endpoints[static_cast<size_t>(placed.endpoint)]);
    if (at_run_time) {
      received_names.push_back(placed.param);
    } else {
      outputs.push_back(placed.param);
    }
  }
  if (at_run_time) outputs = {pair.param};
  job.recv_outputs.insert(job.recv_outputs.end(), outputs.begin(), outputs.end());
  const std::string& after = job.sync() ? job.barrier_control : pair.send_control;
  Op& recv = block.append_op("recv");
  recv.set_input("X", llvm::StringRef(after))
      .set_output("Out", outputs)
      .set_strings("epmap", std::move(endpoints))
      .set_strings("recv_varnames", std::move(received_names))
      .set_int("trainer_id", static_cast<int32_t>(job.arguments.trainer_id));
  finish(recv, role::kRpc)
      .set_strings("op_role_var",
                   {pair.param, pair.is_sliced() ? pair.grad : pair.grad_on_trainer});
}

}  // namespace

Status append_send_barrier(Program& main, PassContext& context, DistributionJob& job) {
  (void)context;
  const bool half_async =
      !job.sync() && job.config.runtime_split_send_recv && job.config.half_async;
  if (!job.sync() && !half_async) return Ok();
  Op& barrier = main.root().append_op("send_barrier");
  barrier.set_input("X", job.barrier_inputs)
      .set_output("Out", llvm::StringRef(job.barrier_control))
      .set_strings("endpoints", job.endpoints)
      .set_int("trainer_id", static_cast<int32_t>(job.arguments.trainer_id))
      .set_bool("half_async", half_async);
  finish(barrier, role::kRpc);
  return Ok();
}

Status append_recvs(Program& main, PassContext& context, DistributionJob& job) {
  (void)context;
  for (const ParamGrad& pair : job.pairs) {
    if (!pair.slices.empty() && !pair.prefetched) append_recv(main.root(), job, pair);
  }
  return Ok();
}

Status join_params(Program& main, PassContext& context, DistributionJob& job) {
  (void)context;
  Block& block = main.root();
  if (job.sync()) {
    Op& barrier = block.append_op("fetch_barrier");
    barrier.set_input("X", llvm::StringRef(job.barrier_control))
        .set_output("Out", job.recv_outputs)
        .set_strings("endpoints", job.endpoints)
        .set_int("trainer_id", static_cast<int32_t>(job.arguments.trainer_id));
    finish(barrier, role::kRpc);
  }
  if (job.config.runtime_split_send_recv) return Ok();
  for (const ParamGrad& pair : job.pairs) {
    if (!pair.is_sliced() || pair.prefetched) continue;
    std::vector<std::string> slices;
    for (const PlacedSlice& placed : pair.slices) slices.push_back(placed.param);
    emit_concat(block, nullptr, slices, pair.param, role::kDist);
  }
  return Ok();
}

Status extend_trainer_startup(Program& main, PassContext& context, DistributionJob& job) {
  const Block& block = main.root();
  Block& startup = context.startup->root();
  const auto trainer = static_cast<int32_t>(job.arguments.trainer_id);
  std::vector<const ParamGrad*> received;
  for (const ParamGrad& pair : job.pairs) {
    if (!pair.slices.empty() && job.sparse_tables.count(pair.param) == 0) received.push_back(&pair);
  }
  for (const ParamGrad* const pair : received) {
    std::vector<std::string> slices;
    std::vector<std::string> endpoints;
    for (const PlacedSlice& placed : pair->slices) {
      slices.push_back(placed.param);
      endpoints.push_back(job.endpoints[static_cast<size_t>(placed.endpoint)]);
      if (startup.find_var(placed.param) == nullptr) {
        VarSpec spec = block.find_var(placed.param)->spec();
        spec.persistable = false;
        startup.declare(placed.param, std::move(spec));
      }
    }
    Op& recv = startup.append_op("recv");
    recv.set_output("Out", slices)
        .set_strings("epmap", std::move(endpoints))
        .set_int("trainer_id", trainer);
    finish(recv, role::kRpc);
  }
  const std::string control = job.startup_controls.create(startup);
  Op& barrier = startup.append_op("fetch_barrier");
  barrier.set_output("Out", llvm::StringRef(control))
      .set_strings("endpoints", job.endpoints)
      .set_int("trainer_id", trainer);
  finish(barrier, role::kRpc);
  for (const ParamGrad* const pair : received) {
    if (!pair->is_sliced()) continue;
    if (startup.find_var(pair->param) == nullptr)
      startup.declare(pair->param, block.find_var(pair->param)->spec());
    std::vector<std::string> slices;
    for (const PlacedSlice& placed : pair->slices) slices.push_back(placed.param);
    emit_concat(startup, nullptr, slices, pair->param, role::kForward);
  }
  return Ok();
}

}  // namespace millrace::transpiler
