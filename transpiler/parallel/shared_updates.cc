#include "transpiler/parallel/shared_updates.h"

#include <algorithm>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringSet.h>

#include "framework/op_attrs.h"
#include "transpiler/parallel/exchanges.h"
#include "transpiler/program_edit.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Each element that they write depends only on the same element of their inputs, and on scalars.
constexpr llvm::StringLiteral kElementwise[] = {
    "adadelta", "adagrad",          "adam",        "adamax",  "adamw", "decayed_adagrad", "ftrl",
    "momentum", "proximal_adagrad", "proximal_gd", "rmsprop", "sgd"};

class UpdateSharer {
 public:
  UpdateSharer(Program& program, llvm::ArrayRef<std::string> keep)
      : block_(program.root()), outside_(names_outside_root(program)), keep_(keep) {}

  int run(std::vector<ParallelGrad>& grads) {
    llvm::erase_if(grads, [&](const ParallelGrad& grad) {
      Op* const update = find_update(grad);
      if (update == nullptr) return false;
      update->set_int("shared_update", count_++);
      return true;
    });
    if (count_ > 0) insert_ends();
    return count_;
  }

 private:
  // The only op that uses the complete gradient; null if there is no such op or it cannot be
  // shared.
  Op* find_update(const ParallelGrad& grad) const {
    if (grad.sparse || (grad.dtype != DType::kFloat32 && grad.dtype != DType::kFloat64))
      return nullptr;
    if (is_kept(grad.grad) || outside_.contains(block_.find_var(grad.grad)->id())) return nullptr;
    const auto comes_later = [&](const Op* op) { return grad.writer->comes_before(*op); };
    if (llvm::any_of(block_.writers_of(grad.grad), comes_later)) return nullptr;
    Op* update = nullptr;
    for (Op* const reader : block_.readers_of(grad.grad)) {
      if (!comes_later(reader)) continue;
      if (update != nullptr) return nullptr;
      update = reader;
    }
    return update != nullptr && fits(*update, grad) ? update : nullptr;
  }

  bool fits(const Op& op, const ParallelGrad& grad) const {
    if (!llvm::is_contained(kElementwise, op.type()) || !role::is_optimize_op(op) ||
        op.first_input("Grad") != grad.grad || get_attr_or<bool>(op, "multi_precision", false))
      return false;
    const Slot* const skip = op.find_input("SkipUpdate");
    if (skip != nullptr && !skip->args.empty()) return false;
    const Var* const param = block_.find_var(op.first_input("Param"));
    if (param == nullptr || param->kind() != VarKind::kLodTensor || param->dtype() != grad.dtype ||
        op.first_output("ParamOut") != op.first_input("Param"))
      return false;
    return llvm::all_of(op.output_names(), [&](llvm::StringRef name) {
      const Var* const var = block_.find_var(name);
      return op.reads(name) && var != nullptr && var->persistable() && !is_kept(name);
    });
  }

  bool is_kept(llvm::StringRef name) const {
    return llvm::any_of(keep_, [&](const std::string& kept) { return name == kept; });
  }

  void insert_ends() {
    std::vector<std::string> grads;
    llvm::StringSet<> written;
    const auto end = [&](Op* where) {
      Op& op = block_.insert_before(where, "shared_updates_end");
      op.set_input("X", grads);
      op.set_int("op_role", role::kOptimize);
      grads.clear();
      written.clear();
    };
    const auto touched = [&](llvm::StringRef name) { return written.contains(name); };
    for (Op* const op : block_.op_vector()) {
      const bool touches = llvm::any_of(op->input_names(), touched) ||
                           llvm::any_of(op->output_names(), touched) || has_block(*op);
      if (touches && !grads.empty()) end(op);
      if (!op->has_attr("shared_update")) continue;
      grads.push_back(op->first_input("Grad").str());
      for (const llvm::StringRef name : op->output_names()) written.insert(name);
      written.insert(grads.back());
    }
    if (!grads.empty()) end(nullptr);
  }

  Block& block_;
  llvm::DenseSet<NameId> outside_;
  llvm::ArrayRef<std::string> keep_;
  int count_ = 0;
};

}  // namespace

int share_updates(Program& program, std::vector<ParallelGrad>& grads,
                  llvm::ArrayRef<std::string> keep) {
  return UpdateSharer(program, keep).run(grads);
}

}  // namespace millrace::transpiler
