#include "transpiler/parallel/gradients.h"

#include <algorithm>

#include <llvm/ADT/StringMap.h>

#include "framework/names.h"
#include "transpiler/distribute/collective_plan.h"
#include "transpiler/parallel/parallel.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

bool is_reduced_already(const Block& block, llvm::StringRef grad) {
  const auto readers = block.readers_of(grad);
  return std::any_of(readers.begin(), readers.end(), [](const Op* op) {
    return op->type() == "allreduce" || op->type().startswith("c_allreduce");
  });
}

// True if the op computes another gradient from one that was found before: clipping that a
// transpiler left on the trainer. Only the first gradient is exchanged.
bool transforms(const Op& op, llvm::StringRef param, const std::vector<ParallelGrad>& found) {
  return std::any_of(found.begin(), found.end(), [&](const ParallelGrad& grad) {
    return grad.param == param && op.reads(grad.grad) && !op.writes(grad.grad);
  });
}

}  // namespace

std::vector<std::string> loss_gradients(const Program& program) {
  std::vector<std::string> names;
  for (const Op& op : program.root().ops()) {
    if (!is_loss_grad_op(op)) continue;
    for (const llvm::StringRef name : op.output_names()) names.push_back(name.str());
  }
  return names;
}

std::vector<std::string> trained_losses(const Program& program) {
  const std::vector<std::string> seeds = loss_gradients(program);
  std::vector<std::string> losses;
  for (const Var& var : program.root().vars()) {
    if (std::find(seeds.begin(), seeds.end(), names::grad(var.name())) != seeds.end())
      losses.push_back(var.name().str());
  }
  return losses;
}

bool is_training_program(const Program& program) {
  const auto ops = program.root().ops();
  return std::any_of(ops.begin(), ops.end(), [](const Op& op) {
    const int32_t role = role::of(op);
    return role != role::kUnspecified && (role & (role::kBackward | role::kOptimize)) != 0;
  });
}

StatusOr<std::vector<ParallelGrad>> find_gradients(Program& program) {
  Block& block = program.root();
  std::vector<ParallelGrad> found;
  llvm::StringMap<size_t> places;
  for (Op& op : block.ops()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<GradPair> pairs, backward_pairs(op));
    for (const GradPair& pair : pairs) {
      if (!block.has_writers(pair.grad) || is_reduced_already(block, pair.grad)) continue;
      if (transforms(op, pair.param, found)) continue;
      const Var& var = *block.find_var(pair.grad);
      ParallelGrad grad;
      grad.param = pair.param;
      grad.grad = pair.grad;
      grad.writer = &op;
      grad.dtype = var.dtype();
      grad.elements = std::max<int64_t>(element_count(var.dims()).value_or(0), 0);
      grad.sparse = var.kind() == VarKind::kSelectedRows;
      const auto [place, is_new] = places.try_emplace(pair.grad, found.size());
      if (is_new) {
        found.push_back(std::move(grad));
      } else {
        found[place->second].writer = &op;  // several ops compute it; the last one completes it
      }
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const ParallelGrad& a, const ParallelGrad& b) {
    return a.writer != b.writer && a.writer->comes_before(*b.writer);
  });
  return found;
}

}  // namespace millrace::transpiler
