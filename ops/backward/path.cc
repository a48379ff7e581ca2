#include <algorithm>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "ops/backward/array_reads.h"
#include "ops/backward/pending.h"
#include "ops/registry.h"

namespace millrace::ops::backward {
namespace {

bool writes_one_of(const Op& op, const Names& names) {
  return llvm::any_of(op.output_names(),
                      [&](llvm::StringRef name) { return names.contains(name.str()); });
}

void add_inputs(const Op& op, const Names& no_grad, Names& needed) {
  for (const llvm::StringRef name : op.input_names()) {
    if (name != names::kEmpty && !no_grad.contains(name.str())) needed.insert(name.str());
  }
  for (const std::string& name : arrays_read_unlisted(op))
    if (!no_grad.contains(name)) needed.insert(name);
}

Course course_of(const Op& op) {
  if (op.type() == "while") return Course::kLoop;
  return op.type() == "recurrent" ? Course::kSteps : Course::kOnce;
}

// Walks back through one block.
class PathFinder {
 public:
  PathFinder(const OpRegistry& registry, Block& block, Names needed, const Names& no_grad,
             Course course)
      : registry_(registry),
        block_(block),
        no_grad_(no_grad),
        course_(course),
        ops_(block.op_vector()),
        on_path_(ops_.size(), false),
        targets_(ops_.size()),
        needed_(std::move(needed)) {}

  StatusOr<OpPath> run() {
    if (course_ == Course::kSteps) need_everything();
    bool changed = true;
    while (changed) {
      const size_t before = needed_.size();
      MILLRACE_RETURN_IF_ERROR(walk());
      changed = course_ == Course::kLoop && needed_.size() != before;
    }
    return collect();
  }

 private:
  // Every op counts, even if no op of the block reads its outputs: the next time step reads states.
  void need_everything() {
    for (const Op* const op : ops_) add_inputs(*op, {}, needed_);
  }

  // Adds ops to the path. Which ones depends on needed_ alone.
  Status walk() {
    for (size_t i = ops_.size(); i-- > 0;) {
      const Op& op = *ops_[i];
      const bool is_needed = writes_one_of(op, needed_);
      if (is_needed && sub_block_of(op) > 0) note_targets(op, targets_[i]);
      if (on_path_[i] || (!is_needed && course_ != Course::kSteps)) continue;
      const OpDef* const def = registry_.find(op.type());
      if (def == nullptr) {
        return Status(StatusCode::kInvalidProgram, "unknown op type; it has no gradient")
            .at(op.location());
      }
      if (!def->has_grad()) continue;
      on_path_[i] = true;
      add_inputs(op, no_grad_, needed_);
    }
    return Ok();
  }

  void note_targets(const Op& op, Names& targets) const {
    for (const llvm::StringRef name : op.output_names()) {
      if (needed_.contains(name.str())) targets.insert(name.str());
    }
  }

  StatusOr<OpPath> collect() {
    OpPath path;
    path.no_grad = no_grad_;
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (!on_path_[i]) continue;
      Op& op = *ops_[i];
      path.ops.push_back(&op);
      if (const int32_t index = sub_block_of(op); index > 0) {
        MILLRACE_ASSIGN_OR_RETURN(path.inner[index], inner_path(op, index, std::move(targets_[i])));
      }
      if (op.has_attr("sub_block") || !writes_one_of(op, needed_)) continue;
      for (const llvm::StringRef name : op.output_names()) {
        if (!needed_.contains(name.str())) path.no_grad.insert(name.str());
      }
    }
    return path;
  }

  StatusOr<OpPath> inner_path(const Op& op, int32_t index, Names targets) {
    Program& program = block_.program();
    if (static_cast<size_t>(index) >= program.block_count() || index <= block_.index()) {
      return InvalidProgram("'sub_block' is {}, expected a block after {}, of {} blocks", index,
                            block_.index(), program.block_count())
          .at(op.location());
    }
    Block& block = program.block(static_cast<size_t>(index));
    const Course course = course_of(op);
    if (course == Course::kSteps) {
      for (const llvm::StringRef name : op.output_names()) targets.insert(name.str());
      for (const std::string& name : get_attr_or<std::vector<std::string>>(op, "states", {}))
        targets.insert(name);
    }
    // add everything in the block that a needed var of the outer block is computed from
    const Names wanted = targets;
    for (const Op& inside : block.ops()) {
      if (writes_one_of(inside, wanted)) add_inputs(inside, {}, targets);
    }
    // vars without a gradient are on the path, too: the gradients of counters count back
    MILLRACE_ASSIGN_OR_RETURN(OpPath path,
                              PathFinder(registry_, block, std::move(targets), {}, course).run());
    path.no_grad.merge(stopped_names(block));
    return path;
  }

  const OpRegistry& registry_;
  Block& block_;
  const Names& no_grad_;
  const Course course_;
  const std::vector<Op*> ops_;
  std::vector<bool> on_path_;
  std::vector<Names> targets_;  ///< of ops with a sub-block: their outputs that are needed
  Names needed_;
};

}  // namespace

int32_t sub_block_of(const Op& op) {
  const AttrValue* const attr = op.find_attr("sub_block");
  return attr == nullptr || attr->kind() != AttrKind::kBlock
             ? -1
             : static_cast<int32_t>(attr->integer());
}

Names stopped_names(const Block& block) {
  Names names;
  for (const Var& var : block.vars())
    if (var.stop_gradient()) names.insert(var.name().str());
  return names;
}

StatusOr<OpPath> find_op_path(const OpRegistry& registry, Block& block, Names needed,
                              const Names& no_grad, Course course) {
  return PathFinder(registry, block, std::move(needed), no_grad, course).run();
}

}  // namespace millrace::ops::backward
