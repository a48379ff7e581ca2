#include "jobs/inspect/program_costs.h"

#include <algorithm>
#include <map>

#include <llvm/ADT/DenseMap.h>

#include "framework/views/summary.h"
#include "ops/cost.h"
#include "transpiler/needed_ops.h"

namespace millrace::jobs {
namespace {

namespace tp = millrace::transpiler;

constexpr size_t kLargest = 8;

double declared_bytes(const Block& block, llvm::StringRef name) {
  const Var* const var = block.find_var_recursive(name);
  return var == nullptr ? 0 : static_cast<double>(ops::tensor_bytes(var->spec()));
}

// A temporary of the root block and the ops between which it is live.
struct Life {
  std::string name;
  double bytes = 0;
  int64_t first = 0;
  int64_t last = 0;
};

// Computes the live ranges of temporaries: where ops of block 0, or of blocks that they own, access
// them.
class Lives {
 public:
  explicit Lives(const Program& program) : program_(program), walking_(program.block_count()) {
    for (const Op& op : program.root().ops()) {
      visit(op);
      ++index_;
    }
  }
  [[nodiscard]] const std::vector<Life>& all() const { return lives_; }

 private:
  void visit(const Op& op) {
    for (const llvm::ArrayRef<Slot> slots : {op.inputs(), op.outputs()}) {
      for (const Slot& slot : slots)
        for (const Arg& arg : slot.args) touch(op, arg.name);
    }
    for (const int32_t block : tp::owned_blocks(op)) {
      if (walking_[static_cast<size_t>(block)]) continue;
      walking_[static_cast<size_t>(block)] = true;
      for (const Op& inner : program_.block(block).ops()) visit(inner);
      walking_[static_cast<size_t>(block)] = false;
    }
  }
  void touch(const Op& op, NameId name) {
    const llvm::StringRef text = op.name_of(name);
    const Var* const var = op.block().find_var_recursive(text);
    if (var == nullptr || var->persistable() || !var->spec().has_tensor()) return;
    const auto [it, added] = index_of_.try_emplace(var, lives_.size());
    if (added) {
      lives_.push_back(
          {text.str(), static_cast<double>(ops::tensor_bytes(var->spec())), index_, 0});
    }
    lives_[it->second].last = index_;
  }

  const Program& program_;
  std::vector<bool> walking_;
  int64_t index_ = 0;
  std::vector<Life> lives_;
  llvm::DenseMap<const Var*, size_t> index_of_;
};

void add_memory(const Program& program, ProgramCosts& costs) {
  const Lives lives(program);
  const auto ops = static_cast<size_t>(program.root().op_count());
  std::vector<double> change(ops + 1);
  for (const Life& life : lives.all()) {
    costs.temporary_bytes += life.bytes;
    change[static_cast<size_t>(life.first)] += life.bytes;
    change[static_cast<size_t>(life.last) + 1] -= life.bytes;
  }
  double alive = 0;
  for (size_t i = 0; i < ops; ++i) {
    alive += change[i];
    if (alive <= costs.peak_bytes) continue;
    costs.peak_bytes = alive;
    costs.peak_op = static_cast<int64_t>(i);
  }
  for (const Life& life : lives.all()) {
    if (life.first <= costs.peak_op && costs.peak_op <= life.last)
      costs.largest.emplace_back(life.name, life.bytes);
  }
  std::stable_sort(costs.largest.begin(), costs.largest.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (costs.largest.size() > kLargest) costs.largest.resize(kLargest);
  for (const Block& block : program.blocks()) {
    for (const Var& var : block.vars()) {
      if (is_stored(var)) costs.stored_bytes += static_cast<double>(ops::tensor_bytes(var.spec()));
    }
  }
}

}  // namespace

double output_bytes(const Op& op) {
  double out = 0;
  for (const llvm::StringRef name : op.output_names()) out += declared_bytes(op.block(), name);
  return out;
}

ProgramCosts program_costs(const Program& program, const ops::OpRegistry& registry) {
  ProgramCosts costs;
  std::map<std::string, TypeCost> types;
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      TypeCost& type = types[op.type().str()];
      const double flops = ops::estimate_flops(registry, op);
      ++type.count;
      type.flops += flops;
      type.bytes_out += output_bytes(op);
      costs.flops += flops;
    }
  }
  for (auto& [name, type] : types) {
    type.type = name;
    costs.types.push_back(std::move(type));
  }
  std::stable_sort(costs.types.begin(), costs.types.end(),
                   [](const TypeCost& a, const TypeCost& b) { return a.flops > b.flops; });
  if (program.block_count() > 0) add_memory(program, costs);
  return costs;
}

void fill_unknown_dims(Program& program, int64_t n) {
  for (Block& block : program.blocks()) {
    for (Var& var : block.vars()) {
      if (!var.spec().has_tensor()) continue;
      Dims dims(var.dims().begin(), var.dims().end());
      if (llvm::none_of(dims, [](int64_t dim) { return dim < 0; })) continue;
      for (int64_t& dim : dims) dim = dim < 0 ? n : dim;
      var.set_dims(dims);
    }
  }
}

}  // namespace millrace::jobs
