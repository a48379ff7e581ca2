#include "ops/infer_context.h"
#include "ops/registry.h"

// Ops with which a trainer communicates with its servers. Received vars keep their declarations, so
// only the lists in the attributes are checked. Defaults: spec/transpiler.md section 14.
namespace millrace::ops {
namespace {

using Strings = std::vector<std::string>;
using Longs = std::vector<int64_t>;

OpDef network_op(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc).side_effects().capability(Capability::kNetwork);
  return def;
}

// epmap holds one endpoint per remote var, or per local var if no remote names are listed. A single
// var may have several endpoints. Without epmap, the communicator determines the endpoints.
Status check_endpoints(const InferContext& ctx, const char* slot, size_t locals,
                       const char* remotes_attr) {
  const size_t endpoints = ctx.attr<Strings>("epmap").size();
  const size_t remotes = ctx.attr<Strings>(remotes_attr).size();
  if (endpoints == 0) return Ok();
  if (remotes == 0 && locals != 1 && endpoints != locals) {
    return ctx.error("attribute 'epmap' has {} endpoints, expected {}, one for each var of '{}'",
                     endpoints, locals, slot);
  }
  return Ok();
}

Status infer_send(InferContext& ctx) {
  return check_endpoints(ctx, "X", ctx.input_count("X"), "send_varnames");
}

Status infer_recv(InferContext& ctx) {
  return check_endpoints(ctx, "Out", ctx.output_count("Out"), "recv_varnames");
}

Status infer_prefetch(InferContext& ctx) {
  if (ctx.input_count("X") != ctx.output_count("Out")) {
    return ctx.error("'Out' has {} vars, expected {}, one for each var of 'X'",
                     ctx.output_count("Out"), ctx.input_count("X"));
  }
  const size_t endpoints = ctx.attr<Strings>("epmap").size();
  if (endpoints != ctx.input_count("X")) {
    return ctx.error("attribute 'epmap' has {} endpoints, expected {}, one for each var of 'X'",
                     endpoints, ctx.input_count("X"));
  }
  return Ok();
}

// The lists that describe slices must have the same length; spec/distributed_io.md section 3.
Status infer_recv_save(InferContext& ctx) {
  const size_t slices = ctx.attr<Strings>("slice_varnames").size();
  for (const char* const attr : {"remote_varnames", "slice_shapes", "endpoints"}) {
    const size_t count = ctx.attr<Strings>(attr).size();
    if (count != slices) {
      return ctx.error("attribute '{}' has {} entries, expected {} as in 'slice_varnames'", attr,
                       count, slices);
    }
  }
  return Ok();
}

void add_transfer(OpRegistry& registry) {
  registry.add(network_op("send", "sends vars to the servers that hold their slices")
                   .input("X", "vars to send", Arity::kAny, kAnyKind)
                   .output("Out", "control var that orders later ops", Arity::kAny, kAnyKind)
                   .attr("trainer_id", 0, "id of this trainer")
                   .range(0)
                   .attr("epmap", Strings{}, "endpoint of each var, host:port")
                   .attr("sections", Longs{}, "rows of each slice; empty: sent whole")
                   .range(0)
                   .attr("send_varnames", Strings{}, "names on the servers; empty: those of X")
                   .attr("merge_add", false, "merge pending gradients by sum, not by mean")
                   .attr("use_send_handler", true, "handler of the original; no effect")
                   .attr("sync_mode", false, "old form; no effect")
                   .attr("table_id", 0, "number of the typed table")
                   .attr("is_sparse", 0, "1: rows of a typed sparse table")
                   .infer(infer_send));
  registry.add(
      network_op("recv", "fetches vars from the servers; slices are joined on dim 0")
          .input("X", "control vars of ops that must run first", Arity::kAny, kAnyKind)
          .output("Out", "vars to fill", Arity::kMany, kAnyKind)
          .attr("trainer_id", 0, "id of this trainer")
          .range(0)
          .attr("epmap", Strings{}, "endpoint of each var, host:port")
          .attr("recv_varnames", Strings{}, "names on the servers; empty: those of Out")
          .attr("varnames", Strings{}, "older name of recv_varnames")
          .attr("with_barrier", true, "false: the server responds at once, in any phase of a round")
          .attr("do_not_run", 0, "1: the communicator receives instead")
          .range(0, 1)
          .attr("sync_mode", false, "old form; no effect")
          .infer(infer_recv));
  registry.add(network_op("prefetch", "looks ids up in the table shards of the servers")
                   .input("X", "ids for each server", Arity::kMany)
                   .output("Out", "rows for each server, in the order of the ids", Arity::kMany)
                   .attr("trainer_id", 0, "id of this trainer")
                   .range(0)
                   .attr("epmap", Strings{}, "endpoint of each var of X, host:port")
                   .attr("table_names", Strings{}, "table on each server")
                   .infer(infer_prefetch));
}

void add_barriers(OpRegistry& registry) {
  registry.add(
      network_op("send_barrier", "reports to every server that this trainer has sent its gradients")
          .input("X", "control vars of ops that must run first", Arity::kAny, kAnyKind)
          .output("Out", "control var that orders later ops", Arity::kAny, kAnyKind)
          .attr("trainer_id", 0, "id of this trainer")
          .range(0)
          .attr("endpoints", Strings{}, "all servers, host:port")
          .attr("half_async", false, "the barrier covers only the threads of this trainer")
          .attr("sync_mode", false, "old form; no effect"));
  registry.add(
      network_op("fetch_barrier",
                 "reports to every server that this trainer has received its parameters")
          .input("X", "control vars of ops that must run first", Arity::kAny, kAnyKind)
          .output("Out", "what was received before, or a control var", Arity::kAny, kAnyKind)
          .attr("trainer_id", 0, "id of this trainer")
          .range(0)
          .attr("endpoints", Strings{}, "all servers, host:port"));
}

void add_saving(OpRegistry& registry) {
  registry.add(OpDef("recv_save")
                   .doc("fetches the slices of a var and writes them as one file")
                   .attr("shape", Longs{}, "dims of the whole var")
                   .range(0)
                   .attr("dtype", 5, "element type, VarType number")
                   .attr("overwrite", true, "false: an existing file is an error")
                   .required_attr<std::string>("file_path", "file to write")
                   .attr("slice_varnames", Strings{}, "local names of the slices, in order")
                   .attr("remote_varnames", Strings{}, "names on the servers")
                   .attr("slice_shapes", Strings{}, "dims of each slice, comma-separated")
                   .attr("endpoints", Strings{}, "endpoint of each slice, host:port")
                   .attr("trainer_id", 0, "id of this trainer")
                   .range(0)
                   .attr("is_sparse", false, "slices are rows of a sparse table")
                   .attr("pserver_num", 1, "servers that share a sparse table")
                   .range(1)
                   .infer(infer_recv_save)
                   .side_effects()
                   .capability(Capability::kFile));
  registry.add(OpDef("checkpoint_notify")
                   .doc("asks every server to save its shard of the distributed tables")
                   .attr("epmap", Strings{}, "all servers, host:port")
                   .attr("endpoints", Strings{}, "newer name of epmap")
                   .attr("dir", "", "folder on the servers")
                   .attr("dirname", "", "newer name of dir")
                   .attr("lookup_table", "", "table to save")
                   .attr("varname", "", "newer name of lookup_table")
                   .attr("mode", 0, "0 full, 1 delta, 2 base")
                   .range(0)
                   .attr("is_slice", false, "old form of mode")
                   .attr("slice_varnames", Strings{}, "slices of the table")
                   .attr("remote_varnames", Strings{}, "names on the servers")
                   .attr("trainer_id", 0, "id of this trainer")
                   .range(0)
                   .side_effects()
                   .capability(Capability::kFile));
}

void add_start(OpRegistry& registry) {
  const auto nccl_id = [](llvm::StringRef type) {
    return network_op(type, "creates the id of the GPU group and sends it to the other trainers");
  };
  registry.add(nccl_id("gen_nccl_id")
                   .output("NCCLID", "the id", Arity::kMany, kAnyKind)
                   .attr("trainers", Strings{}, "endpoints of all trainers, host:port")
                   .attr("trainer_id", 0, "index of this trainer in 'trainers'")
                   .range(0)
                   .attr("endpoint", "", "old form: endpoint of this trainer")
                   .attr("endpoint_list", Strings{}, "old form: endpoints of the others")
                   .attr("nccl_comm_num", 1, "number of groups")
                   .range(1)
                   .attr("use_hierarchical_allreduce", false, "groups in and between hosts")
                   .attr("hierarchical_allreduce_inter_nranks", -1, "trainers of an inner group")
                   .attr("hierarchical_allreduce_exter_nranks", -1, "number of inner groups"));
  registry.add(network_op("send_and_recv", "runs a block on a worker with other hardware")
                   .input("X", "vars to send", Arity::kMany, kAnyKind)
                   .output("Out", "vars to fill", Arity::kMany, kAnyKind)
                   .attr("message_name", "", "message that selects the block")
                   .attr("mode", "forward", "direction in the chain of workers")
                   .one_of({"forward", "backward"})
                   .attr("send_var_name", Strings{}, "names of X on the other side")
                   .attr("recv_var_name", Strings{}, "names of Out on the other side")
                   .attr("trainer_id", 0, "id of this trainer")
                   .range(0)
                   .attr("endpoint", "", "old form: the one worker")
                   .attr("endpoints", Strings{}, "workers of this stage, host:port")
                   .attr("next_endpoints", Strings{}, "workers of the next stage")
                   .attr("previous_endpoints", Strings{}, "workers of the previous stage"));
}

}  // namespace

void add_distributed_rpc(OpRegistry& registry) {
  add_transfer(registry);
  add_barriers(registry);
  add_saving(registry);
  add_start(registry);
}

}  // namespace millrace::ops
