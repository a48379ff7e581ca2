#include "executor/block_runner.h"
#include "executor/overlap/op_work.h"
#include "executor/overlap/overlap.h"
#include "framework/base/exceptions.h"

// The part of BlockRunner that runs ops in parallel.
namespace millrace::executor {

void BlockRunner::allow_overlap() {
  // with watched memory, ops must run in order: memory is opened and closed for each op
  overlap_ = device_.threads() > 1 && !watches_memory_
                 ? std::make_unique<Overlap>(device_.threads())
                 : nullptr;
}

// Called before the first run, when fed and persistable values already have their dims.
Status BlockRunner::choose_overlap() {
  overlap_->choose(compiled_ops_, estimate_work(compiled_ops_, table_.data(), *runtime_.kernels,
                                                device_.threads()));
  for (const Group& group : overlap_->groups())
    MILLRACE_RETURN_IF_ERROR(make_kernels(group, overlap_->device()));
  arena_.hold(overlap_->holds());
  return Ok();
}

// Kernels are prepared for the number of threads of one device, so those of a group are made for a
// device with one thread.
Status BlockRunner::make_kernels(const Group& group, kernels::CpuDevice& device) {
  for (int32_t s = group.first; s < group.end; ++s) {
    CompiledOp& compiled = compiled_ops_[static_cast<size_t>(s)];
    const kernels::KernelSetup setup(*compiled.def, *compiled.op, device, *runtime_.ops);
    StatusOr<kernels::Kernel> kernel = runtime_.kernels->find(compiled.op->type())(setup);
    if (!kernel.ok()) return place_error(compiled, std::move(kernel).status());
    compiled.kernel = *std::move(kernel);
  }
  return Ok();
}

// Runs an op of a group on a device with one thread. With an observer, ops run one after
// another.
Status BlockRunner::run_placed(size_t index, kernels::CpuDevice& device) {
  CompiledOp& compiled = compiled_ops_[index];
  if (observer_ != nullptr) observer_->before(compiled);
  Status status = run_op(compiled, device);
  if (status.ok()) {
    status = without_exceptions("after the op", [&]() -> Status {
      if (observer_ != nullptr) MILLRACE_RETURN_IF_ERROR(observer_->after(compiled, table_.data()));
      return arena_.after_op(index, table_.data());
    });
  }
  return status.ok() ? Ok() : place_error(compiled, std::move(status));
}

Status BlockRunner::run_with_overlap() {
  if (!overlap_->has_chosen()) MILLRACE_RETURN_IF_ERROR(choose_overlap());
  size_t next = 0;
  const bool steady = arena_.is_planned() && observer_ == nullptr;
  for (size_t g = 0; g < overlap_->groups().size(); ++g) {
    const Group& group = overlap_->groups()[g];
    MILLRACE_RETURN_IF_ERROR(run_in_order(next, static_cast<size_t>(group.first), nullptr));
    MILLRACE_RETURN_IF_ERROR(overlap_->run(
        g, compiled_ops_, table_.data(), device_, steady,
        [this](size_t index, kernels::CpuDevice& device) { return run_placed(index, device); }));
    next = static_cast<size_t>(group.end);
  }
  MILLRACE_RETURN_IF_ERROR(run_in_order(next, compiled_ops_.size(), nullptr));
  if (overlap_->is_useless()) {
    for (const Group& group : overlap_->groups())
      MILLRACE_RETURN_IF_ERROR(make_kernels(group, device_));
    arena_.hold({});
    overlap_.reset();
  }
  return Ok();
}

}  // namespace millrace::executor
