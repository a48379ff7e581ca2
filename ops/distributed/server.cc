#include "framework/program.h"
#include "ops/infer_context.h"
#include "ops/registry.h"

// Ops that turn a process into a server. They return when all clients have disconnected.
namespace millrace::ops {
namespace {

using Strings = std::vector<std::string>;

AttrDef optional_blocks(llvm::StringRef name, llvm::StringRef doc) {
  AttrDef def;
  def.name = name;
  def.doc = doc;
  def.kind = AttrKind::kBlocks;
  def.fallback = AttrValue::of_blocks({});
  return def;
}

// Checks entries of the form "name:block", where block is a block index of the program.
Status check_block_map(const InferContext& ctx, const char* attr) {
  const Op& op = ctx.op();
  for (const std::string& entry : ctx.attr<Strings>(attr)) {
    const auto [name, number] = llvm::StringRef(entry).rsplit(':');
    int64_t block = -1;
    if (name.empty() || number.getAsInteger(10, block) || block < 0 ||
        static_cast<size_t>(block) >= op.program().block_count()) {
      return ctx.error(
          "attribute '{}' has the entry '{}', expected name:block with a block in "
          "[0, {})",
          attr, entry, op.program().block_count());
    }
  }
  return Ok();
}

Status infer_listen(InferContext& ctx) {
  for (const char* const attr : {"grad_to_block_id", "prefetch_var_name_to_block_id"}) {
    MILLRACE_RETURN_IF_ERROR(check_block_map(ctx, attr));
  }
  for (const char* const attr : {"checkpint_block_id", "lr_decay_block_id"}) {
    const auto block = ctx.attr<int32_t>(attr);
    const auto count = static_cast<int64_t>(ctx.op().program().block_count());
    if (block < -1 || block >= count) {
      return ctx.error("attribute '{}' is {}, expected -1 or a block in [0, {})", attr, block,
                       count);
    }
  }
  return Ok();
}

OpDef server_op(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "vars that arrive", Arity::kAny, kAnyKind)
      .attr("endpoint", "127.0.0.1:6164", "endpoint of this process, host:port")
      .attr("pserver_id", -1, "index of this server")
      .add_attr_def(optional_blocks("optimize_blocks", "blocks run when gradients have arrived"))
      .attr("grad_to_block_id", Strings{},
            "name:block; the block to run when that gradient has arrived")
      .attr("sync_mode", false, "old form of distributed_mode 0")
      .attr("rpc_get_thread_num", 1, "handler threads; no effect on results")
      .attr("rpc_send_thread_num", 1, "handler threads; no effect on results")
      .attr("rpc_prefetch_thread_num", 1, "handler threads; no effect on results")
      .side_effects()
      .capability(Capability::kNetwork);
  return def;
}

}  // namespace

void add_distributed_server(OpRegistry& registry) {
  registry.add(server_op("listen_and_serv", "serves parameters and runs the optimizer blocks")
                   .attr("distributed_mode", 0, "0 sync, 1 async, 2 half async, 3 geo")
                   .range(0, 3)
                   .attr("dc_asgd", false, "compensate for late gradients")
                   .attr("Fanin", 1, "number of trainers")
                   .range(1)
                   .attr("prefetch_var_name_to_block_id", Strings{},
                         "name:block; the block that looks up ids of that table")
                   .attr("sparse_grad_to_param", Strings{}, "gradient:param of sparse tables")
                   .attr("checkpint_block_id", -1, "block that saves tables (sic); -1: none")
                   .attr("lr_decay_block_id", -1, "block that computes the learning rate; -1: none")
                   .infer(infer_listen));
  registry.add(
      server_op("fl_listen_and_serv", "serves parameters and averages those of the trainers")
          .attr("Fanin", 1, "number of trainers")
          .range(1));
  registry.add(
      server_op("heter_listen_and_serv", "runs blocks for trainers with other hardware")
          .attr("distributed_mode", 0, "0 sync, 1 async, 2 half async, 3 geo")
          .range(0, 3)
          .attr("message_to_block_id", Strings{}, "message:block; the block that a message runs")
          .attr("fanin", 1, "number of trainers")
          .range(1)
          .attr("rpc_exec_thread_num", 1, "handler threads; no effect on results"));
}

}  // namespace millrace::ops
