#include "jobs/inspect/selection.h"

#include <algorithm>

#include "framework/base/errors.h"

namespace millrace::jobs {

StatusOr<bool> select_part(Program& program, const Selection& selection) {
  const auto& [only, ops, wanted_var] = selection;
  if (only >= 0 && static_cast<size_t>(only) >= program.block_count())
    return InvalidArgument("options.block {}: the program has {} blocks", only,
                           program.block_count());
  if (only < 0 && ops.empty() && !wanted_var) return false;
  for (Block& block : program.blocks()) {
    const bool whole = only >= 0 && block.index() != only;
    for (Op* const op : block.op_vector()) {
      const bool listed = std::find(ops.begin(), ops.end(), op->type().str()) != ops.end();
      if (whole || (!ops.empty() && !listed)) block.erase(*op);
    }
    std::vector<Var*> unwanted;
    for (Var& var : block.vars())
      if (whole || (wanted_var && !wanted_var(var.name()))) unwanted.push_back(&var);
    for (Var* const var : unwanted) block.erase(*var);
  }
  return true;
}

}  // namespace millrace::jobs
