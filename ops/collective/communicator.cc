#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Ops that create process groups, and ops that order computation and communication.
namespace millrace::ops {
namespace {

Status infer_pass(InferContext& ctx) {
  copy_each(ctx, "X", "Out");
  return Ok();
}

// These ops only order streams; without streams they do nothing.
OpDef order_op(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "vars passed on", Arity::kAny)
      .output("Out", "the same vars", Arity::kAny)
      .attr("ring_id", 0, "id of the process group")
      .range(0)
      .infer(infer_pass)
      .side_effects();
  return def;
}

OpDef setup_op(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .attr("ring_id", 0, "id of the process group")
      .range(0)
      .side_effects()
      .capability(Capability::kNetwork);
  return def;
}

}  // namespace

void add_collective_communicator(OpRegistry& registry) {
  registry.add(order_op("c_sync_calc_stream", "waits until earlier computation is done"));
  registry.add(order_op("c_sync_comm_stream", "waits until earlier communication is done"));
  registry.add(order_op("c_wait_comm", "computation waits for communication"));
  registry.add(order_op("c_wait_compute", "communication waits for computation"));
  registry.add(
      setup_op("c_gen_nccl_id", "creates the id of a process group and sends it to the other ranks")
          .output("Out", "the id", Arity::kOne, kAnyKind)
          .attr("rank", 0, "rank of this process")
          .range(0)
          .attr("endpoint", "", "endpoint of this process, host:port")
          .attr("other_endpoints", std::vector<std::string>{}, "endpoints of the other processes"));
  registry.add(setup_op("c_comm_init", "joins a process group")
                   .input("X", "the id", Arity::kOne, kAnyKind)
                   .attr("nranks", 1, "size of the group")
                   .range(1)
                   .attr("rank", 0, "rank of this process")
                   .range(0)
                   .attr("device_id", -1, "GPU to use; -1: that of the executor")
                   .attr("endpoints", "", "no effect"));
  registry.add(
      setup_op("c_comm_init_multitrainer", "joins a process group of all GPUs of several processes")
          .input("X", "the id", Arity::kOne, kAnyKind)
          .attr("ntrainers", 1, "number of processes")
          .range(1)
          .attr("trainer_id", 0, "index of this process")
          .range(0)
          .attr("devices", std::vector<int32_t>{}, "GPUs to use; empty: all of them"));
  registry.add(setup_op("c_comm_init_all", "creates a group of the GPUs of this process")
                   .attr("devices", std::vector<int32_t>{}, "GPUs; empty: all of them"));
}

}  // namespace millrace::ops
