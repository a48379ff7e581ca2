#include "framework/names.h"
#include "transpiler/distribute/emit.h"
#include "transpiler/distribute/geo_passes.h"
#include "transpiler/distribute/pserver_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

constexpr int32_t kGeoMode = 3;  // value of distributed_mode

}  // namespace

std::unique_ptr<Program> make_geo_pserver(const Program& main, const DistributionJob& job,
                                          size_t server) {
  std::unique_ptr<Program> program = Program::create();
  program->set_version(main.has_version(), main.version());
  Block& root = program->root();
  std::vector<int32_t> blocks;
  std::vector<std::string> delta_to_block;
  std::vector<std::string> sparse_delta_to_param;
  for (const OwnedSlice& owned : job.owned[server]) {
    const ParamGrad& pair = job.pairs[owned.pair];
    const PlacedSlice& placed = pair.slices[owned.slice];
    const bool sparse = pair.grad_kind == VarKind::kSelectedRows;
    VarSpec spec = plain_spec(pair.param_kind, pair.dtype, placed.slice.dims);
    spec.persistable = true;
    if (!pair.is_sliced() && pair.lod_level != 0) spec.lod_level = pair.lod_level;
    root.declare(placed.param, std::move(spec));
    const std::string delta = names::delta(placed.param);
    const VarKind kind = sparse ? VarKind::kSelectedRows : pair.param_kind;
    root.declare(delta, plain_spec(kind, pair.dtype, placed.slice.dims));

    Block& block = program->add_block(0);
    emit_sum(block, nullptr, {placed.param, delta}, placed.param, role::kForward);
    blocks.push_back(block.index());
    delta_to_block.push_back(delta + ":" + std::to_string(block.index()));
    if (sparse) sparse_delta_to_param.push_back(delta + ":" + placed.param);
  }
  Op& serve = root.append_op("listen_and_serv");
  serve.set_attr("optimize_blocks", AttrValue::of_blocks(std::move(blocks)))
      .set_string("endpoint", job.endpoints[server])
      .set_int("Fanin", static_cast<int32_t>(job.trainers))
      .set_int("distributed_mode", kGeoMode)
      .set_strings("grad_to_block_id", std::move(delta_to_block))
      .set_strings("sparse_grad_to_param", std::move(sparse_delta_to_param))
      .set_int("rpc_get_thread_num", static_cast<int32_t>(job.config.rpc_get_thread_num))
      .set_int("rpc_send_thread_num", static_cast<int32_t>(job.config.rpc_send_thread_num))
      .set_int("rpc_prefetch_thread_num", static_cast<int32_t>(job.config.rpc_prefetch_thread_num));
  finish(serve, role::kForward);
  return program;
}

}  // namespace millrace::transpiler
