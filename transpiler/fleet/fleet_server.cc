#include "transpiler/distribute/op_builder.h"
#include "transpiler/fleet/fleet_programs.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// The server chooses the number of threads.
constexpr int32_t kServerChooses = -1;

void append_listen(Block& block, const FleetServerOptions& options) {
  Op& op = block.append_op("listen_and_serv");
  op.set_input("X", llvm::ArrayRef<std::string>())
      .set_string("endpoint", options.endpoint)
      .set_int("pserver_id", options.server)
      .set_int("Fanin", options.workers)
      .set_int("distributed_mode", static_cast<int32_t>(options.mode))
      .set_attr("optimize_blocks", AttrValue::of_blocks({}))
      .set_strings("grad_to_block_id", {})
      .set_strings("sparse_grad_to_param", {})
      .set_int("lr_decay_block_id", -1)
      .set_int("rpc_get_thread_num", kServerChooses)
      .set_int("rpc_send_thread_num", kServerChooses)
      .set_int("rpc_prefetch_thread_num", kServerChooses);
  finish(op, role::kForward);
}

}  // namespace

FleetPrograms make_fleet_server(const FleetServerOptions& options) {
  FleetPrograms out;
  out.main = Program::create();
  out.startup = Program::create();
  if (options.mode == FleetMode::kGeo) append_listen(out.main->root(), options);
  return out;
}

}  // namespace millrace::transpiler
