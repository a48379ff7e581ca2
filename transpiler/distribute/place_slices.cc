#include "framework/base/errors.h"
#include "ops/cost.h"
#include "transpiler/distribute/dispatcher.h"
#include "transpiler/distribute/legacy_shuffle.h"
#include "transpiler/distribute/optimizer_state.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Bytes and work of the update of a whole param, from its optimizer ops.
struct UpdateCost {
  int64_t bytes = 0;
  double work = 0;
};

std::vector<UpdateCost> update_costs(const Program& main, const PassContext& context,
                                     const DistributionJob& job) {
  std::vector<UpdateCost> costs(job.pairs.size());
  const Block& block = main.root();
  for (size_t pair = 0; pair < job.pairs.size(); ++pair) {
    UpdateCost& cost = costs[pair];
    for (const Op* const op : job.ops_of_pair[pair]) {
      cost.work += ops::estimate_flops(context.registry, *op);
      if (!role::is_optimizer(*op)) continue;
      for (const Slot& slot : op->inputs()) {
        const llvm::StringRef slot_name = op->name_of(slot.name);
        if (slot_name == "LearningRate" || slot_name == "Grad") continue;
        for (const Arg& arg : slot.args) {
          if (const Var* const var = block.find_var(arg.name))
            cost.bytes += ops::tensor_bytes(var->spec());
        }
      }
    }
  }
  return costs;
}

std::vector<uint32_t> send_order(const DistributionJob& job) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < job.pairs.size(); ++i) {
    if (!job.pairs[i].slices.empty()) order.push_back(i);
  }
  if (job.config.slice_var_up) return order;
  std::vector<uint32_t> shuffled;
  for (const uint32_t i :
       legacy_shuffle(job.arguments.random_seed, static_cast<uint32_t>(order.size()))) {
    shuffled.push_back(order[i]);
  }
  return shuffled;
}

// Adds one "Param" entry per slice, in pair order.
void list_params(const Block& block, DistributionJob& job) {
  for (const ParamGrad& pair : job.pairs) {
    for (size_t i = 0; i < pair.slices.size(); ++i) {
      const PlacedSlice& placed = pair.slices[i];
      DistributedVar entry;
      entry.origin = facts_of(*block.find_var(pair.param));
      entry.slice = facts_of(*block.find_var(placed.param));
      entry.is_slice = pair.is_sliced();
      entry.block_id = pair.is_sliced() ? static_cast<int64_t>(i) : 0;
      entry.offset = pair.is_sliced() ? placed.slice.offset : 0;
      entry.vtype = pair.prefetched ? "RemotePrefetch" : "Param";
      entry.endpoint = job.endpoints[static_cast<size_t>(placed.endpoint)];
      job.overview.add_distributed_var(std::move(entry));
    }
  }
}

void mark_prefetched(DistributionJob& job) {
  for (const Op* const op : job.prefetch_lookups) {
    for (const llvm::StringRef name : op->input_names()) {
      const auto it = job.pair_of_param.find(name);
      if (it == job.pair_of_param.end()) continue;
      ParamGrad& pair = job.pairs[it->second];
      // A dense gradient is sent whole, so its table is fetched whole too.
      if (pair.grad_kind == VarKind::kSelectedRows) pair.prefetched = true;
    }
  }
}

}  // namespace

VarFacts facts_of(const Var& var) {
  VarFacts facts;
  facts.name = var.name().str();
  facts.shape = var.dims().vec();
  facts.dtype = static_cast<int32_t>(var.dtype());
  facts.type = static_cast<int32_t>(var.kind());
  facts.lod_level = var.lod_level();
  facts.persistable = var.persistable();
  return facts;
}

Status place_slices(Program& main, PassContext& context, DistributionJob& job) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Dispatcher> dispatcher,
                            make_dispatcher(job.config.split_method, job.endpoints.size()));
  const std::vector<UpdateCost> costs = update_costs(main, context, job);
  job.send_order = send_order(job);
  std::vector<Placeable> slices;
  std::vector<OwnedSlice> which;
  for (const uint32_t p : job.send_order) {
    const ParamGrad& pair = job.pairs[p];
    double total = 0;
    for (const PlacedSlice& placed : pair.slices) total += static_cast<double>(placed.slice.elems);
    for (uint32_t s = 0; s < pair.slices.size(); ++s) {
      const double share = static_cast<double>(pair.slices[s].slice.elems) / total;
      slices.push_back(Placeable{pair.slices[s].param, p,
                                 static_cast<int64_t>(static_cast<double>(costs[p].bytes) * share),
                                 costs[p].work * share});
      which.push_back(OwnedSlice{p, s});
    }
  }
  job.place(*dispatcher, slices, which);
  mark_prefetched(job);
  list_params(main.root(), job);
  return Ok();
}

}  // namespace millrace::transpiler
