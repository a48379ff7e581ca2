#include "framework/names.h"
#include "transpiler/distribute/emit.h"
#include "transpiler/distribute/federated_passes.h"
#include "transpiler/distribute/pserver_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// The copies that the trainers send of a parameter.
std::vector<std::string> declare_copies(Block& root, const DistributionJob& job,
                                        const ParamGrad& pair) {
  std::vector<std::string> copies;
  for (int64_t trainer = 0; trainer < job.trainers; ++trainer) {
    copies.push_back(names::federated(pair.param, trainer));
    root.declare(copies.back(),
                 plain_spec(pair.param_kind, pair.dtype, pair.slices.front().slice.dims));
  }
  return copies;
}

}  // namespace

StatusOr<std::unique_ptr<Program>> make_federated_pserver(const Program& main,
                                                          const PassContext& context,
                                                          const DistributionJob& job) {
  PserverBuilder b(main, context, job, 0);
  Block& root = b.root();
  for (const ParamGrad& pair : job.pairs) {
    VarSpec spec = plain_spec(pair.param_kind, pair.dtype, pair.slices.front().slice.dims);
    spec.persistable = true;
    if (pair.lod_level != 0) spec.lod_level = pair.lod_level;
    root.declare(pair.param, std::move(spec));
  }
  MILLRACE_RETURN_IF_ERROR(build_lr_block(b));
  const bool averages = job.sync() && job.trainers > 1;
  for (const ParamGrad& pair : job.pairs) {
    Block& block = b.program->add_block(0);
    b.optimize_blocks.push_back(block.index());
    if (!averages) {
      b.received.push_back(pair.param);
      continue;
    }
    const std::vector<std::string> copies = declare_copies(root, job, pair);
    b.received.insert(b.received.end(), copies.begin(), copies.end());
    emit_sum(block, nullptr, copies, pair.param, role::kForward);
    emit_scale(block, nullptr, pair.param, pair.param,
               static_cast<float>(1.0 / static_cast<double>(job.trainers)), role::kForward);
  }
  Op& serve = root.append_op("fl_listen_and_serv").set_input("X", b.received);
  serve.set_attr("optimize_blocks", AttrValue::of_blocks(b.optimize_blocks))
      .set_string("endpoint", job.endpoints.front())
      .set_int("Fanin", static_cast<int32_t>(job.trainers))
      .set_bool("sync_mode", job.sync());
  finish(serve, role::kForward);
  return std::move(b.program);
}

}  // namespace millrace::transpiler
