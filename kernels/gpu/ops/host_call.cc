#include "kernels/gpu/ops/host_call.h"

#include "kernels/gpu/resident.h"

namespace millrace::gpu {

Status read_tensor(Memory& memory, const Tensor& from, Tensor& to) {
  memory.device().note_unrepeatable();
  const ResidentLayout* const there = resident(from);
  if (there == nullptr) return copy_plain(from, to);
  MILLRACE_RETURN_IF_ERROR(to.resize(from.dtype(), from.dims()));
  if (from.bytes() == 0) return Ok();
  if (there->host() == nullptr) return memory.copy_out(from.raw(), to.raw(), from.bytes());
  return to.copy_from(*there->host());
}

HostCall::HostCall(const KernelSetup& op) {
  for (const Slot& slot : op.op().inputs()) inputs_.append(slot.args.size(), -1);
  size_t outputs = 0;
  for (const Slot& slot : op.op().outputs()) outputs += slot.args.size();
  for (size_t k = 0; k < outputs; ++k) outputs_.push_back(static_cast<int32_t>(inputs_.size() + k));
}

Status HostCall::read(Memory& memory, const KernelContext& ctx, llvm::ArrayRef<ArgRange> slots) {
  const size_t count = inputs_.size() + outputs_.size();
  values_ = std::vector<Value>(count);
  table_.clear();
  for (Value& value : values_) table_.push_back(&value);
  for (const ArgRange slot : slots) {
    for (int32_t k = 0; k < slot.count; ++k) {
      const int32_t at = slot.begin + k;
      inputs_[static_cast<size_t>(at)] = -1;
      if (!ctx.has_in(slot, k)) continue;
      const auto* const from = ctx.in_value(slot, k).get_if<Tensor>();
      if (from == nullptr || !from->initialized()) return refuse("an input holds no tensor");
      MILLRACE_RETURN_IF_ERROR(
          read_tensor(memory, *from, values_[static_cast<size_t>(at)].as<Tensor>()));
      inputs_[static_cast<size_t>(at)] = at;
    }
  }
  return Ok();
}

Status size_here(Memory& memory, Tensor& out, DType dtype, llvm::ArrayRef<int64_t> dims) {
  if (resident(out) != nullptr && out.dtype() == dtype && out.dims() == dims) return Ok();
  return resize_resident(out, dtype, dims, memory, "a result");
}

}  // namespace millrace::gpu
