#include "executor/control/exchange_place.h"

#include "executor/block_runner.h"
#include "framework/base/errors.h"
#include "framework/tensor/layout.h"
#include "kernels/cpu/layouts.h"
#include "kernels/gpu/communicator.h"
#include "kernels/gpu/resident.h"

namespace millrace::executor {

StatusOr<Rings*> find_rings(const BlockRunner& runner, const char* does) {
  if (Rings* const rings = runner.runtime().rings.get()) return rings;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("the op {}, but this process has no peers", does))
      .with_hint("start it by launch or mpirun, or specify its rank");
}

Status pass_on_plain(const Value& x, Value& out) {
  if (&x == &out) return Ok();
  if (const auto* const tensor = x.get_if<Tensor>()) {
    auto& to = out.as<Tensor>();
    return tensor->layout() == nullptr ? to.copy_from(*tensor) : copy_plain(*tensor, to);
  }
  MILLRACE_ASSIGN_OR_RETURN(out, clone(x));
  return Ok();
}

StatusOr<ExchangePlace> ExchangePlace::find(const ControlContext& ctx, int32_t ring,
                                            const Value& value) {
  MILLRACE_ASSIGN_OR_RETURN(Rings* const rings, find_rings(ctx.runner, kExchanges));
  kernels::CpuDevice& device = ctx.args.device();
  const auto* const tensor = value.get_if<Tensor>();
  if (!rings->uses_devices() || ctx.runner.gpu() == nullptr || tensor == nullptr ||
      !gpu::is_exchanged(tensor->dtype())) {
    MILLRACE_ASSIGN_OR_RETURN(CollectiveGroup* const group, rings->ring(ring));
    return ExchangePlace(*group, device);
  }
  const std::shared_ptr<gpu::Context>& context = gpu::context_of(device);
  MILLRACE_ASSIGN_OR_RETURN(CollectiveGroup* const group, rings->ring_on_device(ring, context));
  ExchangePlace place(*group, device);
  place.gpu_ = context;
  return place;
}

Status ExchangePlace::pass_on(const Value& x, Value& out, const std::string& holder) const {
  if (gpu_ == nullptr) {
    if (&x != &out) return pass_on_plain(x, out);
    auto* const tensor = out.get_if<Tensor>();
    return tensor == nullptr ? Ok() : kernels::bring_to(*device_, *tensor, nullptr);
  }
  auto& to = out.as<Tensor>();
  gpu::Memory& memory = gpu_->memory();
  if (&x == &out) {
    MILLRACE_RETURN_IF_ERROR(gpu::move_in(to, memory, holder));
    gpu::forget_host(to);
    return Ok();
  }
  Tensor copy;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, read(*x.get_if<Tensor>(), copy, holder));
  MILLRACE_RETURN_IF_ERROR(gpu::resize_resident(to, from->dtype(), from->dims(), memory, holder));
  to.set_lod(from->lod());
  if (from->numel() == 0) return Ok();
  return memory.device().copy(from->raw(), to.raw(), from->bytes());
}

StatusOr<const Tensor*> ExchangePlace::read(const Tensor& tensor, Tensor& copy,
                                            const std::string& holder) const {
  if (gpu_ == nullptr && tensor.layout() == nullptr) return &tensor;
  if (gpu_ == nullptr) {
    MILLRACE_RETURN_IF_ERROR(copy_plain(tensor, copy));
    return &copy;
  }
  const gpu::ResidentLayout* const there = gpu::resident(tensor);
  if (there != nullptr && &there->block()->memory() == &gpu_->memory()) return &tensor;
  MILLRACE_RETURN_IF_ERROR(gpu::upload(tensor, copy, gpu_->memory(), holder));
  return &copy;
}

StatusOr<Tensor> ExchangePlace::make(DType dtype, llvm::ArrayRef<int64_t> dims,
                                     const std::string& holder) const {
  if (gpu_ == nullptr) return Tensor::create(dtype, dims);
  Tensor made;
  MILLRACE_RETURN_IF_ERROR(gpu::resize_resident(made, dtype, dims, gpu_->memory(), holder));
  return made;
}

}  // namespace millrace::executor
