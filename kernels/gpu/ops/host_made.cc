#include "kernels/gpu/ops/host_call.h"
#include "kernels/gpu/resident.h"
#include "kernels/register_all.h"
#include "kernels/registry.h"

// Ops with small results that follow from dims, attributes or a few numbers: the processor computes
// them and copies them to the device without waiting for it. It keeps the copy, so that an op that
// reads them as dims or bounds does not wait either.
namespace millrace::gpu {
namespace {

// The kernel of the processor, for ops whose inputs are a few numbers.
StatusOr<Kernel> by_processor(const KernelSetup& op) {
  const auto registry = kernels::standard_kernels();
  MILLRACE_ASSIGN_OR_RETURN(Kernel inner, registry->find(op.op().type())(op));
  std::vector<ArgRange> slots;
  int32_t begin = 0;
  for (const Slot& slot : op.op().inputs()) {
    slots.push_back({begin, static_cast<int32_t>(slot.args.size())});
    begin += slots.back().count;
  }
  return Kernel([&memory = memory_of(op), inner = std::move(inner), slots = std::move(slots),
                 call = std::make_shared<HostCall>(op),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(call->read(memory, ctx, slots));
    const KernelContext inside = call->context(ctx);
    MILLRACE_RETURN_IF_ERROR(inner(inside));
    return upload(inside.out(out), ctx.out(out), memory, "a result");
  });
}

// Dims of a tensor, or of the values of selected rows.
const Tensor* tensor_of(const Value& value) {
  const auto* const rows = value.get_if<SelectedRows>();
  return rows != nullptr ? &rows->value : value.get_if<Tensor>();
}

// \param kMake  returns the result for a tensor whose elements must not be read
template <auto kMake>
StatusOr<Kernel> about(const KernelSetup& op, const char* slot) {
  return Kernel([&memory = memory_of(op), input = op.input(slot),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    const Tensor* const from = tensor_of(ctx.in_value(input));
    if (from == nullptr) return refuse("input is {}", describe(ctx.in_value(input)));
    memory.device().note_unrepeatable();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor made, kMake(*from));
    Tensor& to = ctx.out(out);
    if (to.initialized() && to.numel() == made.numel() && to.dtype() == made.dtype() &&
        to.dims() != made.dims()) {
      Tensor same;
      MILLRACE_RETURN_IF_ERROR(same.resize(made.dtype(), to.dims()));
      std::copy_n(made.raw(), made.bytes(), same.raw());
      return upload(same, to, memory, "a result");
    }
    return upload(made, to, memory, "a result");
  });
}

StatusOr<Tensor> dims_of(const Tensor& from) {
  Tensor made;
  MILLRACE_RETURN_IF_ERROR(made.resize(DType::kInt32, {static_cast<int64_t>(from.rank())}));
  for (size_t i = 0; i < from.rank(); ++i)
    made.data<int32_t>()[i] = static_cast<int32_t>(from.dims()[i]);
  return made;
}
StatusOr<Tensor> size_of(const Tensor& from) {
  Tensor made;
  MILLRACE_RETURN_IF_ERROR(made.resize(DType::kInt64, {1}));
  *made.data<int64_t>() = from.numel();
  return made;
}
StatusOr<Tensor> emptiness_of(const Tensor& from) {
  Tensor made;
  MILLRACE_RETURN_IF_ERROR(made.resize(DType::kBool, {1}));
  *made.data<bool>() = from.numel() == 0;
  return made;
}

StatusOr<Kernel> gpu_shape(const KernelSetup& op) {
  return about<dims_of>(op, "Input");
}
StatusOr<Kernel> gpu_size(const KernelSetup& op) {
  return about<size_of>(op, "Input");
}
StatusOr<Kernel> gpu_is_empty(const KernelSetup& op) {
  return about<emptiness_of>(op, "X");
}

}  // namespace

void add_host_made(KernelRegistry& registry) {
  registry.add("shape", gpu_shape);
  registry.add("size", gpu_size);
  registry.add("is_empty", gpu_is_empty);
  for (const char* const type : {"assign_value", "range", "linspace", "fill"})
    registry.add(type, by_processor);
}

}  // namespace millrace::gpu
