#include "transpiler/distribute/optimize_readings.h"

#include <llvm/ADT/STLExtras.h>

#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Output W_Out of hierarchical_sigmoid is its input W, unchanged: release 2.6 names the param
// there. Nor does data_norm_grad change the statistics that it names as outputs: the op that trains
// them adds their gradients.
bool leaves_unchanged(const Op& op, const Slot& slot, const Arg& arg) {
  if (op.type() == "data_norm_grad") {
    const llvm::StringRef name = op.name_of(slot.name);
    return name == "BatchSize" || name == "BatchSum" || name == "BatchSquareSum";
  }
  return op.type() == "hierarchical_sigmoid" && op.name_of(slot.name) == "W_Out" &&
         op.name_of(arg.name) == op.first_input("W");
}

}  // namespace

Reading OptimizeMember::reading_of(llvm::StringRef var) const {
  const auto* const found =
      llvm::find_if(readings, [&](const Reading& reading) { return reading.var == var; });
  return found == readings.end() ? Reading{var, nullptr} : *found;
}

OptimizeReadings::OptimizeReadings(Block& block) {
  llvm::DenseMap<NameId, Op*> last;  // the last writer of each var so far
  for (Op& op : block.ops()) {
    const bool is_member = role::is_optimize_op(op);
    const bool schedules = role::is_lr_op(op);
    OptimizeMember member;
    for (const Slot& slot : op.inputs()) {
      for (const Arg& arg : slot.args) {
        const Reading reading{op.name_of(arg.name), last.lookup(arg.name)};
        if (is_member) {
          member.readings.push_back(reading);
          member.tainted = member.tainted || is_tainted(reading);
        } else if (reading.writer != nullptr &&
                   (schedules || index_of(reading.writer) != UINT32_MAX)) {
          outside_.emplace_back(&op, reading);
        }
      }
    }
    for (const Slot& slot : op.outputs()) {
      for (const Arg& arg : slot.args) {
        if (!leaves_unchanged(op, slot, arg)) last[arg.name] = &op;
      }
      member.outputs += slot.args.size();
    }
    if (!is_member) continue;
    member.op = &op;
    index_[&op] = static_cast<uint32_t>(members_.size());
    members_.push_back(std::move(member));
  }
}

uint32_t OptimizeReadings::index_of(const Op* op) const {
  const auto found = index_.find(op);
  return op == nullptr || found == index_.end() ? UINT32_MAX : found->second;
}

bool OptimizeReadings::is_tainted(const Reading& reading) const {
  const uint32_t m = index_of(reading.writer);
  if (m != UINT32_MAX) return members_[m].tainted;
  return reading.writer != nullptr && !role::is_lr_op(*reading.writer);
}

}  // namespace millrace::transpiler
