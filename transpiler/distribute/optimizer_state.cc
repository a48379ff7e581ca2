#include "transpiler/distribute/optimizer_state.h"

#include <array>
#include <set>
#include <string>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringSet.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace optimizer_state_parts {
namespace {

std::string_view view(llvm::StringRef s) {
  return {s.data(), s.size()};
}

// Accumulators that have the shape of the param; the op's other accumulators are scalars.
struct StateRow {
  const char* op;
  std::array<const char*, 3> cut_slots;
};

constexpr std::array<StateRow, 12> kStates = {
    {{"adam", {"Moment1", "Moment2", nullptr}},
     {"adamw", {"Moment1", "Moment2", nullptr}},
     {"adagrad", {"Moment", nullptr, nullptr}},
     {"adamax", {"Moment", "InfNorm", nullptr}},
     {"momentum", {"Velocity", nullptr, nullptr}},
     {"lars_momentum", {"Velocity", nullptr, nullptr}},
     {"rmsprop", {"Moment", "MeanSquare", nullptr}},
     {"decayed_adagrad", {"Moment", nullptr, nullptr}},
     {"adadelta", {"AvgSquaredGrad", "AvgSquaredUpdate", nullptr}},
     {"ftrl", {"SquaredAccumulator", "LinearAccumulator", nullptr}},
     {"lamb", {"Moment1", "Moment2", nullptr}},
     {"sgd", {nullptr, nullptr, nullptr}}}};

// The original's overview lists this var as whole although the server holds a slice of it (quirk
// Q10); readers of the overview compare with it.
bool listed_whole(const Op& op, llvm::StringRef slot) {
  return op.type() == "rmsprop" && slot == "MeanGrad";
}

// Adds one entry per slot of state.
Status list_state(const Block& block, const Op& op, const OwnedSlice& owned, size_t server,
                  DistributionJob& job) {
  const ParamGrad& pair = job.pairs[owned.pair];
  const PlacedSlice& placed = pair.slices[owned.slice];
  for (const Slot& slot : op.inputs()) {
    const llvm::StringRef slot_name = op.name_of(slot.name);
    if (is_plain_optimizer_slot(slot_name) || slot.args.empty()) continue;
    const Var* const state = block.find_var(slot.args[0].name);
    if (state == nullptr) {
      return InvalidProgram("optimizer state '{}' is not declared in block 0",
                            view(op.name_of(slot.args[0].name)))
          .at(op.location());
    }
    MILLRACE_ASSIGN_OR_RETURN(const bool follows,
                              accumulator_follows_param(op, slot_name, pair.is_sliced()));
    DistributedVar entry;
    entry.origin = entry.slice = facts_of(*state);
    entry.vtype = "Optimizer";
    entry.endpoint = job.endpoints[server];
    if (follows && !listed_whole(op, slot_name))
      entry.slice.shape.assign(placed.slice.dims.begin(), placed.slice.dims.end());
    if (listed_whole(op, slot_name) && pair.is_sliced()) entry.param = follows ? pair.param : "";
    const llvm::ArrayRef<int64_t> shape(entry.slice.shape);
    if (pair.is_sliced() && shape == llvm::ArrayRef<int64_t>(placed.slice.dims)) {
      entry.is_slice = true;
      entry.block_id = owned.slice;
      entry.offset = placed.slice.offset;
    }
    job.overview.add_distributed_var(std::move(entry));
  }
  return Ok();
}

// Lists what ops other than the update keep: averages of the param, and the constants that they
// use. The original lists none of them, so its checkpoints do not contain them.
class KeptVars {
 public:
  KeptVars(const Block& block, DistributionJob& job) : block_(block), job_(job) {
    for (const Op* const op : role::lr_ops(block)) {
      for (const llvm::StringRef name : op->output_names()) listed_once_.insert(name);
    }
  }

  void list(const Op& op, const OwnedSlice& owned, size_t server) {
    const ParamGrad& pair = job_.pairs[owned.pair];
    for (const llvm::StringRef name : op.output_names()) add(name, pair, owned, server);
    for (const llvm::StringRef name : op.input_names()) {
      // a constant is the same everywhere: it is listed for one server
      const bool changes = llvm::any_of(job_.ops_of_pair[owned.pair],
                                        [&](const Op* each) { return each->writes(name); });
      if (changes || listed_once_.insert(name).second) add(name, pair, owned, server);
    }
  }

 private:
  void add(llvm::StringRef name, const ParamGrad& pair, const OwnedSlice& owned, size_t server) {
    const Var* const var = block_.find_var(name);
    if (var == nullptr || !var->persistable() || name == pair.param || is_state(name, owned.pair) ||
        !listed_.insert(std::to_string(server) + " " + name.str()).second)
      return;
    DistributedVar entry;
    entry.origin = entry.slice = facts_of(*var);
    entry.vtype = "Optimizer";
    entry.endpoint = job_.endpoints[server];
    if (kept_var_follows_param(*var, block_, pair)) {
      const PlacedSlice& placed = pair.slices[owned.slice];
      entry.slice.shape.assign(placed.slice.dims.begin(), placed.slice.dims.end());
      entry.is_slice = true;
      entry.block_id = owned.slice;
      entry.offset = placed.slice.offset;
    }
    job_.overview.add_distributed_var(std::move(entry));
  }

  // True if the update reads it: then list_state() lists it, or it is the rate.
  bool is_state(llvm::StringRef name, uint32_t pair) const {
    return llvm::any_of(job_.ops_of_pair[pair],
                        [&](const Op* op) { return role::is_optimizer(*op) && op->reads(name); });
  }

  const Block& block_;
  DistributionJob& job_;
  llvm::StringSet<> listed_once_;
  std::set<std::string> listed_;
};

}  // namespace
}  // namespace optimizer_state_parts

bool kept_var_follows_param(const Var& var, const Block& block, const ParamGrad& pair) {
  const Var* const param = block.find_var(pair.param);
  return pair.is_sliced() && var.persistable() && param != nullptr && var.name() != pair.param &&
         var.dims() == param->dims();
}

bool is_plain_optimizer_slot(llvm::StringRef slot) {
  return slot == "Param" || slot == "Grad" || slot == "LearningRate" || slot == "Beta1Tensor" ||
         slot == "Beta2Tensor";
}

StatusOr<bool> accumulator_follows_param(const Op& op, llvm::StringRef slot, bool param_is_cut) {
  using namespace optimizer_state_parts;
  const llvm::StringRef type = op.type();
  const auto* const row = llvm::find_if(kStates, [&](const StateRow& r) { return type == r.op; });
  if (row == kStates.end()) {
    return Unimplemented(
               "optimizer '{}' is not supported for distributed training: it is not known how its "
               "state '{}' is divided between servers",
               view(type), view(slot))
        .at(op.location());
  }
  if (param_is_cut && type == "lamb") {
    return Unimplemented(
               "optimizer 'lamb' scales by the norm of the whole param '{}', which is sliced over "
               "servers",
               view(op.first_input("Param")))
        .at(op.location())
        .with_hint("set slice_var_up to false");
  }
  // Read only if centered; otherwise it is not updated and keeps its declared shape.
  if (type == "rmsprop" && slot == "MeanGrad") return get_attr_or<bool>(op, "centered", false);
  return llvm::any_of(row->cut_slots,
                      [&](const char* name) { return name != nullptr && slot == name; });
}

Status list_optimizer_state(Program& main, PassContext& context, DistributionJob& job) {
  using namespace optimizer_state_parts;
  (void)context;
  struct Update {
    const Op* op;
    OwnedSlice owned;
  };
  for (size_t server = 0; server < job.endpoints.size(); ++server) {
    // In program order, not in the order in which slices were assigned.
    std::vector<Update> updates;
    for (const OwnedSlice& owned : job.owned[server]) {
      for (const Op* const op : job.ops_of_pair[owned.pair]) {
        if (role::is_optimizer(*op)) updates.push_back({op, owned});
      }
    }
    llvm::stable_sort(updates, [](const Update& a, const Update& b) {
      return a.op != b.op && a.op->comes_before(*b.op);
    });
    for (const Update& update : updates)
      MILLRACE_RETURN_IF_ERROR(list_state(main.root(), *update.op, update.owned, server, job));
  }
  KeptVars kept(main.root(), job);
  for (size_t server = 0; server < job.endpoints.size(); ++server) {
    for (const OwnedSlice& owned : job.owned[server]) {
      for (const Op* const op : job.ops_of_pair[owned.pair]) {
        if (!role::is_optimizer(*op)) kept.list(*op, owned, server);
      }
    }
  }
  return Ok();
}

}  // namespace millrace::transpiler
