#include "ops/backward/append_backward.h"

#include <algorithm>
#include <map>

#include <llvm/ADT/DenseSet.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "ops/backward/array_overwrites.h"
#include "ops/backward/array_reads.h"
#include "ops/backward/counters.h"
#include "ops/backward/known_names.h"
#include "ops/backward/pending.h"
#include "ops/backward/versions.h"
#include "ops/backward/wrong_gradients.h"
#include "ops/infer_shapes.h"

namespace millrace::ops {
namespace {

using backward::Names;
using backward::OpPath;
using backward::PendingOp;
using backward::sub_block_of;

constexpr int32_t kForwardLoss = 256;
constexpr int32_t kBackward = 1;
constexpr int32_t kBackwardLoss = 257;

// State of one append_backward() call.
class Backward {
 public:
  Backward(const OpRegistry& registry, Program& program, const BackwardRequest& request)
      : registry_(registry), program_(program), request_(request) {}

  StatusOr<std::vector<ParamGrad>> run() {
    Block& root = program_.root();
    MILLRACE_RETURN_IF_ERROR(mark_loss(root));
    backward::split_versions(registry_, program_, request_.loss, request_.warnings);
    for (const Var& var : root.vars()) existing_.insert(var.name().str());
    // a gradient that an op names and no op computes must stay absent, so its name counts as taken
    for (const Op& op : root.ops()) {
      for (const llvm::StringRef name : op.input_names())
        if (backward::is_grad_name(name)) existing_.insert(name.str());
    }
    Names no_grad = backward::stopped_names(root);
    no_grad.insert(request_.no_grad.begin(), request_.no_grad.end());
    MILLRACE_ASSIGN_OR_RETURN(
        const OpPath path,
        backward::find_op_path(registry_, root, {request_.loss}, no_grad, backward::Course::kOnce));
    if (request_.earlier_calls > 0) backward::restore_counters(root, root);
    std::vector<PendingOp> ops{loss_grad()};
    MILLRACE_RETURN_IF_ERROR(make_ops(path, root, ops));
    MILLRACE_RETURN_IF_ERROR(finish(ops, root, path.no_grad, nullptr));
    append(ops, root);
    rename_existing(root);
    declare_grads(root, {}, {});
    for (Block* const block : unused_blocks_) declare_grads(*block, {}, {});
    return mark_params(root);
  }

 private:
  Status mark_loss(Block& root) {
    const Var* const loss = root.find_var(request_.loss);
    const llvm::SmallVector<Op*, 4> writers = root.writers_of(request_.loss);
    if (loss == nullptr || writers.empty()) {
      return InvalidProgram("loss '{}': expected a var of block 0 that an op writes",
                            request_.loss);
    }
    if (!llvm::all_of(loss->dims(), [](int64_t dim) { return dim == 1; })) {
      return InvalidProgram("loss '{}': expected one element, found dims {}", request_.loss,
                            dims_text(loss->dims()));
    }
    writers.back()->set_int("op_role", kForwardLoss);
    loss_device_ = get_attr_or<std::string>(*writers.back(), "op_device", "");
    return Ok();
  }

  PendingOp loss_grad() const {
    const Var& loss = *program_.root().find_var(request_.loss);
    GradOp fill("fill_constant");
    fill.output("Out", {names::grad(request_.loss)})
        .attr("shape", make_attr(std::vector<int64_t>(loss.dims().begin(), loss.dims().end())))
        .attr("value", make_attr(1.0F))
        .attr("dtype", make_attr(static_cast<int32_t>(loss.dtype())))
        .attr("force_cpu", make_attr(false))
        .attr("place_type", make_attr(int32_t{-1}))
        .attr("op_role", make_attr(kBackwardLoss));
    if (!loss_device_.empty()) fill.attr("op_device", make_attr(loss_device_));
    return {std::move(fill), nullptr};
  }

  // Gradient ops of a path, last op first. target receives the gradients of the block.
  Status make_ops(const OpPath& path, Block& target, std::vector<PendingOp>& out) {
    for (size_t i = path.ops.size(); i-- > 0;) {
      Op& op = *path.ops[i];
      Block* sub_block = nullptr;
      if (const int32_t index = sub_block_of(op); index > 0) {
        MILLRACE_ASSIGN_OR_RETURN(sub_block, make_sub_block(op, path.inner.at(index), target));
      }
      const GradContext context(
          op, [&](llvm::StringRef name) { return !path.no_grad.contains(name.str()); });
      MILLRACE_ASSIGN_OR_RETURN(std::vector<GradOp> made, make_grad_ops(registry_, context));
      if (made.empty() && sub_block != nullptr) unused_blocks_.push_back(sub_block);
      if (made.empty()) add_reader(op, out);
      backward::note_wrong_gradients(op, made, out, request_.warnings);
      for (GradOp& grad : made) {
        set_attr(grad, "op_role", make_attr(kBackward));
        set_attr(grad, "op_role_var", make_attr(std::vector<std::string>{}));
        if (sub_block != nullptr) {
          backward::hand_out_once(grad);
          point_at(grad, *sub_block, op);
        }
        out.push_back({std::move(grad), sub_block});
      }
    }
    return Ok();
  }

  // An op without wanted gradients has a gradient op in the original, which drops it late: until
  // then it is a reader, and sums go before the first reader. Only `sum` never has such an op.
  static void add_reader(const Op& op, std::vector<PendingOp>& out) {
    if (op.type() == "sum") return;
    GradOp reader(op.type());
    std::vector<std::string> grads;
    for (const llvm::StringRef name : op.output_names()) grads.push_back(names::grad(name));
    reader.input("Out@GRAD", std::move(grads));
    out.push_back({std::move(reader), nullptr});
  }

  // Adds a block with the gradient ops of the op's sub-block.
  StatusOr<Block*> make_sub_block(const Op& op, const OpPath& path, Block& target) {
    const int32_t index = sub_block_of(op);
    Block& forward = program_.block(static_cast<size_t>(index));
    Block& block = program_.add_block(target.index());
    block.set_forward_block(index);
    if (request_.earlier_calls > 0) backward::restore_counters(forward, block);
    std::vector<PendingOp> ops;
    MILLRACE_RETURN_IF_ERROR(make_ops(path, block, ops));
    MILLRACE_RETURN_IF_ERROR(finish(ops, forward, path.no_grad, &op));
    append(ops, block);
    return &block;
  }

  // \param owner  op that owns the forward block; null for block 0
  Status finish(std::vector<PendingOp>& ops, const Block& forward, const Names& no_grad,
                const Op* owner) const {
    Names cleared = backward::arrays_overwritten(forward);
    Names given;  // gradients to which each iteration of a loop adds
    if (owner != nullptr && backward::block_kind(*owner) == backward::BlockKind::kLoop) {
      cleared.merge(backward::arrays_read_apart(*owner, request_.warnings));
      for (const std::string& array : cleared) given.insert(names::grad(array));
    }
    backward::sum_repeated_outputs(ops, forward.index(), given);
    backward::remove_unneeded(ops, no_grad);
    MILLRACE_RETURN_IF_ERROR(backward::check_taken(ops, forward));
    backward::clear_taken_elements(ops, cleared);
    return Ok();
  }

  static void set_attr(GradOp& op, const std::string& name, AttrValue value) {
    for (auto& [key, old] : op.attrs) {
      if (key != name) continue;
      old = std::move(value);
      return;
    }
    op.attrs.emplace_back(name, std::move(value));
  }

  // Sets attribute sub_block. For a loop, also drops the gradients that the block does not use.
  static void point_at(GradOp& grad, const Block& block, const Op& forward) {
    set_attr(grad, "sub_block", AttrValue::of_block(block.index()));
    if (grad.type != "while_grad") return;
    backward::hand_out_arrays(grad, forward);
    Names written;
    Names read_first;
    for (const Op& op : block.ops()) {
      for (const llvm::StringRef name : op.input_names())
        if (!written.contains(name.str())) read_first.insert(name.str());
      for (const llvm::StringRef name : op.output_names()) written.insert(name.str());
    }
    for (auto& [slot, names] : grad.inputs) {
      if (slot != "Out@GRAD") continue;
      std::erase_if(names, [&](const std::string& name) { return !read_first.contains(name); });
      std::sort(names.begin(), names.end());
      set_attr(grad, "original_output_grad", make_attr(names));
    }
    const auto x = forward.input("X");
    for (auto& [slot, names] : grad.outputs) {
      for (size_t i = 0; i < names.size(); ++i) {
        const bool ends =
            read_first.contains(names[i]) && i < x.size() && starts_before(forward, x[i]);
        if (!written.contains(names[i]) && !ends) names[i] = names::kEmpty;
      }
    }
  }

  // True if the var has a value before the loop. If the loop overwrites it without reading it, the
  // gradient from the ops after the loop does not belong to that value. The original passes it on.
  static bool starts_before(const Op& loop, llvm::StringRef name) {
    const Var* const var = loop.block().find_var_recursive(name);
    const Op* const writer = loop.block().first_writer(name);
    return var != nullptr && backward::is_dense_float(*var) && writer != nullptr &&
           writer->comes_before(loop);
  }

  void append(std::vector<PendingOp>& ops, Block& block) {
    for (PendingOp& pending : ops) {
      Op& op = block.append_op(pending.op.type);
      for (const auto& [slot, names] : pending.op.inputs)
        op.set_input(slot, llvm::ArrayRef<std::string>(names));
      for (const auto& [slot, names] : pending.op.outputs)
        op.set_output(slot, llvm::ArrayRef<std::string>(names));
      set_attr(pending.op, "op_role", role_of(pending.op));
      for (auto& [name, value] : pending.op.attrs) op.set_attr(name, std::move(value));
      ours_.insert(&op);
      if (!request_.after_append) continue;
      request_.after_append(block, op);
      for (const Op& added : llvm::reverse(block.ops())) {
        if (&added == &op) break;
        added_.insert(&added);
      }
    }
  }

  static AttrValue role_of(const GradOp& op) {
    for (const auto& [name, value] : op.attrs)
      if (name == "op_role" && value == make_attr(kBackwardLoss)) return value;
    return make_attr(kBackward);
  }

  // Gradients of an earlier call keep their names; those of this call get a prefix.
  void rename_existing(Block& root) {
    if (request_.earlier_calls == 0) return;
    std::string prefix;
    for (int i = 0; i <= request_.earlier_calls; ++i) prefix += "grad/";
    std::map<std::string, std::string> renamed;
    const auto rename = [&](llvm::StringRef name) {
      if (backward::is_grad_name(name) && existing_.contains(name.str()))
        renamed.emplace(name.str(), prefix + name.str());
    };
    for (const Op& op : root.ops()) {
      if (!ours_.contains(&op) && !added_.contains(&op)) continue;
      // also what no op of this call writes: it is absent, not the result of an earlier call
      for (const llvm::StringRef name : op.input_names()) rename(name);
      for (const llvm::StringRef name : op.output_names()) rename(name);
    }
    for (Op& op : root.ops()) {
      if (!ours_.contains(&op) && !added_.contains(&op)) continue;
      for (const auto& [from, to] : renamed) {
        op.replace_input(from, to);
        op.replace_output(from, to);
      }
    }
    for (Op& op : root.ops()) {
      if (!ours_.contains(&op)) continue;
      for (const auto& [from, to] : renamed) rename_in_branch(op, from, to);
    }
    renamed_ = std::move(renamed);
  }

  // A branch finds the gradients of its outputs by name; loops and recurrences get them as inputs.
  void rename_in_branch(Op& op, const std::string& from, const std::string& to) {
    if (op.type() != "conditional_block_grad") return;
    for (Op& inside : program_.block(static_cast<size_t>(sub_block_of(op))).ops()) {
      rename_in_branch(inside, from, to);
      if (!inside.reads(from) && inside.writes(from)) return;  // a var of the branch itself
      inside.replace_input(from, to);
      inside.replace_output(from, to);
    }
  }

  // ---- vars

  // Hides gradients of earlier calls from sub-blocks, where this call uses the same names.
  [[nodiscard]] bool is_visible(const Block& block, llvm::StringRef name) const {
    const Var* const var = block.find_var_recursive(name);
    if (var == nullptr) return false;
    const bool is_earlier = request_.earlier_calls > 0 && block.index() > 0 &&
                            var->block().index() == 0 && backward::is_grad_name(name) &&
                            existing_.contains(name.str());
    return !is_earlier;
  }

  // Gradients that exist in the sub-block of an op before any op in it has run. A loop carries the
  // gradients that it both reads and writes between iterations, so an op may read one before its
  // writer. The state of a recurrence has the gradient that the next time step has left. The
  // original handles the first case one block deep only.
  [[nodiscard]] Names carried_into(const Op& op, Names from_outside) const {
    const auto inside = get_attr_or<std::vector<std::string>>(op, "original_output_grad", {});
    const auto outside = op.input("Out@GRAD");
    for (size_t k = 0; k < outside.size(); ++k) {
      if (outside[k] == names::kEmpty) continue;
      // one term of a sum has another name outside
      const std::string name = k < inside.size() ? inside[k] : outside[k].str();
      if (op.writes(outside[k]) || name != outside[k]) from_outside.insert(name);
    }
    if (op.type() != "recurrent_grad") return from_outside;
    // the gradient of an output has another name outside if an earlier call uses the plain one
    const auto outputs = op.input("outputs");
    const auto given = op.input("outputs@GRAD");
    for (size_t k = 0; k < std::min(outputs.size(), given.size()); ++k) {
      const std::string name = names::grad(outputs[k]);
      if (name != given[k] && is_visible(op.block(), given[k])) from_outside.insert(name);
    }
    for (const std::string& state : get_attr_or<std::vector<std::string>>(op, "states", {})) {
      // whether the gradient of an output exists is decided outside
      if (!llvm::is_contained(op.input("outputs"), state)) from_outside.insert(names::grad(state));
    }
    return from_outside;
  }

  // Gradients that the executor reads from the scope of an iteration by the names of forward vars.
  // The block must declare them: a var of that name in an enclosing block is a different one.
  static Names taken_out(const Op& op) {
    Names taken;
    const auto add = [&](const char* slot) {
      const auto inputs = op.input(slot);
      const auto grads = op.output(names::grad(slot));
      for (size_t i = 0; i < std::min(inputs.size(), grads.size()); ++i) {
        const std::string inside = names::grad(inputs[i]);
        if (grads[i] != names::kEmpty && grads[i] != inside) taken.insert(inside);
      }
    };
    for (const char* const slot : {"X", "Input", "inputs", "parameters"}) add(slot);
    for (const std::string& name :
         get_attr_or<std::vector<std::string>>(op, "original_output_grad", {}))
      taken.erase(name);
    return taken;
  }

  void declare_sub_block(const Op& op, Block& block, const Names& carried) {
    const Names inside = carried_into(op, carried);
    declare_grads(block, inside, taken_out(op));
    if (op.type() != "recurrent_grad") return;
    // the gradient that the next time step leaves is stored in a var of this time step
    for (const std::string& name : inside) {
      if (!carried.contains(name) && !is_visible(block, name) && !block.readers_of(name).empty())
        declare_like_forward(block, name);
    }
  }

  // Declares outputs in op order, those of a sub-block before those of its op. Removes ops whose
  // input gradients do not exist, and removes such gradients from sums.
  // \param own  names to declare even if an enclosing block declares them
  void declare_grads(Block& block, const Names& carried, const Names& own) {
    for (Op* const op : block.op_vector()) {
      if (!ours_.contains(op)) continue;
      if (const int32_t index = sub_block_of(*op);
          index > 0 && program_.block(static_cast<size_t>(index)).forward_block().has_value())
        declare_sub_block(*op, program_.block(static_cast<size_t>(index)), carried);
      if (is_without_gradient(*op, carried)) {
        forget(*op, block);
        continue;
      }
      for (const llvm::StringRef name : op->output_names()) {
        if (block.find_var(name) != nullptr ||
            (is_visible(block, name) && !own.contains(name.str())))
          continue;
        if (name == names::kEmpty && op->type() == "conditional_block_grad")
          block.declare(name, VarSpec::tensor(placeholder_dtype(*op), {}));
        if (name != names::kEmpty && backward::is_grad_name(name))
          declare_like_forward(block, name);
      }
      // where inference fails, the shape stays that of the forward var
      (void)infer_op(registry_, *op);
      set_rows_kind(*op, block);
    }
  }

  // A quirk of the original: conditional_block_grad also declares the placeholder @EMPTY@, with the
  // type of the last input whose gradient it replaces.
  static DType placeholder_dtype(const Op& op) {
    const auto inputs = op.input("Input");
    const auto grads = op.output("Input@GRAD");
    DType dtype = DType::kFloat32;
    for (size_t i = 0; i < std::min(inputs.size(), grads.size()); ++i) {
      const Var* const var = op.block().find_var_recursive(inputs[i]);
      if (grads[i] == names::kEmpty && var != nullptr && var->spec().has_tensor())
        dtype = var->dtype();
    }
    return dtype;
  }

  [[nodiscard]] bool is_without_gradient(Op& op, const Names& carried) const {
    if (op.output_names().empty() ||
        llvm::all_of(op.output_names(), [](llvm::StringRef n) { return n == names::kEmpty; }))
      return true;
    bool any = false;
    bool exists = false;
    llvm::SmallVector<llvm::StringRef, 4> present;
    for (const llvm::StringRef name : op.input_names()) {
      if (!backward::is_grad_name(name)) continue;
      any = true;
      if (is_visible(op.block(), name) || carried.contains(name.str())) {
        exists = true;
        present.push_back(name);
      }
    }
    if (any && exists && op.type() == "sum") op.set_input("X", present);
    return any && !exists;
  }

  void forget(Op& op, Block& block) {
    ours_.erase(&op);
    block.erase(op);
  }

  // "grad/grad/x@GRAD@RENAME@block0@1" has the shape of x.
  static void declare_like_forward(Block& block, llvm::StringRef grad) {
    llvm::StringRef forward = grad.split("@GRAD").first;
    while (forward.consume_front("grad/")) {
    }
    // in a time step, the forward block hides the sequence of the same name outside
    const auto index = static_cast<size_t>(std::max(block.forward_block().value_or(0), 0));
    const Var* like =
        index == 0 ? nullptr : block.program().block(index).find_var_recursive(forward);
    if (like == nullptr) like = block.find_var_recursive(forward);
    VarSpec spec = like == nullptr ? VarSpec::tensor(DType::kFloat32, {}) : like->spec();
    spec.persistable.reset();
    spec.is_parameter.reset();
    spec.need_check_feed.reset();
    spec.stop_gradient = false;
    block.declare(grad, std::move(spec));
  }

  // A sparse lookup produces selected rows, and so does a sum of selected rows only.
  static void set_rows_kind(const Op& op, Block& block) {
    const bool lookup = op.type() == "lookup_table_grad" || op.type() == "lookup_table_v2_grad";
    bool rows = lookup && get_attr_or<bool>(op, "is_sparse", false);
    if (op.type() == "sum") {
      rows = llvm::all_of(op.input_names(), [&](llvm::StringRef name) {
        const Var* const var = block.find_var_recursive(name);
        return var != nullptr && var->kind() == VarKind::kSelectedRows;
      });
    }
    if (!rows) return;
    for (const llvm::StringRef name : op.output_names()) {
      Var* const var = block.find_var(name);
      if (var == nullptr) continue;
      VarSpec spec = var->spec();
      spec.kind = VarKind::kSelectedRows;
      spec.form = TensorForm::kSelectedRows;
      spec.lod_level.reset();
      var->set_spec(std::move(spec));
    }
  }

  // ---- parameters

  std::vector<std::string> parameters(const Block& root) const {
    if (!request_.parameters.empty()) return request_.parameters;
    std::vector<std::string> names;
    for (const Var& var : root.vars()) {
      if (var.is_parameter() && !request_.no_grad.contains(var.name().str()))
        names.push_back(var.name().str());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::vector<ParamGrad> mark_params(Block& root) {
    std::vector<ParamGrad> pairs;
    for (const std::string& param : parameters(root)) {
      std::string grad = names::grad(param);
      if (const auto found = renamed_.find(grad); found != renamed_.end()) grad = found->second;
      Op* last = nullptr;
      for (Op* const writer : root.writers_of(grad))
        if (ours_.contains(writer)) last = writer;
      if (last == nullptr) continue;
      std::vector<std::string> roles{param, grad};
      const auto old = get_attr_or<std::vector<std::string>>(*last, "op_role_var", {});
      roles.insert(roles.end(), old.begin(), old.end());
      last->set_strings("op_role_var", std::move(roles));
      pairs.push_back({param, std::move(grad)});
    }
    return pairs;
  }

  const OpRegistry& registry_;
  Program& program_;
  const BackwardRequest& request_;
  std::string loss_device_;          ///< op_device of the op that computes the loss
  Names existing_;                   ///< vars of block 0 before the call
  llvm::DenseSet<const Op*> ours_;   ///< ops that this call has appended
  llvm::DenseSet<const Op*> added_;  ///< ops that after_append has appended after them
  std::map<std::string, std::string> renamed_;
  std::vector<Block*> unused_blocks_;  ///< gradient blocks that no gradient op refers to
};

}  // namespace

StatusOr<std::vector<ParamGrad>> append_backward(const OpRegistry& registry, Program& program,
                                                 const BackwardRequest& request) {
  MILLRACE_RETURN_IF_ERROR(backward::check_names(program, request.parameters, request.no_grad));
  return Backward(registry, program, request).run();
}

}  // namespace millrace::ops
