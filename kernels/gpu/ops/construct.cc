#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/random/shape_arg.h"
#include "kernels/gpu/ops/host_call.h"
#include "kernels/gpu/ops/words.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// Ops that create or copy values: constants, copies, and the same elements with other dims.
namespace millrace::gpu {
namespace {

// The bytes of an element with that value. Integers are cut off. Errors: rejects other types, and
// numbers that do not fit.
StatusOr<uint64_t> bits_of(DType dtype, double value) {
  const bool is_small = std::abs(value) <= 0x1p31 - 1;
  if (dtype == DType::kFloat32) return __builtin_bit_cast(uint32_t, static_cast<float>(value));
  if (dtype == DType::kFloat64) return __builtin_bit_cast(uint64_t, value);
  if (dtype == DType::kBool) return static_cast<uint64_t>(value != 0 ? 1 : 0);
  const bool whole = dtype == DType::kInt8 || dtype == DType::kUint8 || dtype == DType::kInt16 ||
                     dtype == DType::kInt32 || dtype == DType::kInt64;
  if (is_small && whole) return static_cast<uint64_t>(static_cast<int64_t>(value));
  return refuse("the GPU kernel does not fill {} with {}", dtype_name(dtype), value);
}

Status fill_elements(Device& device, Tensor& to, double value) {
  MILLRACE_ASSIGN_OR_RETURN(const uint64_t bits, bits_of(to.dtype(), value));
  return with_word(dtype_size(to.dtype()), [&](auto word) -> Status {
    using Word = decltype(word);
    if constexpr (std::is_integral_v<Word>) {
      return each(device, Set<Word>{reinterpret_cast<Word*>(to.raw()), static_cast<Word>(bits)},
                  to.numel());
    } else {
      return refuse("elements of {} bytes", sizeof(Word));
    }
  });
}

// Dims and bounds of later ops: the processor keeps a copy, so that they do not wait.
Status fill_numbers(Memory& memory, Tensor& to, double value) {
  memory.device().note_unrepeatable();
  Tensor made;
  MILLRACE_RETURN_IF_ERROR(made.resize(to.dtype(), to.dims()));
  for (int64_t i = 0; i < to.numel(); ++i) {
    if (to.dtype() == DType::kInt32)
      made.data<int32_t>()[i] = static_cast<int32_t>(value);
    else
      made.data<int64_t>()[i] = static_cast<int64_t>(value);
  }
  return upload(made, to, memory, "a constant");
}

Status fill_constant(Memory& memory, Tensor& to, double value) {
  constexpr int64_t kMostNumbers = 16;
  const bool whole = to.dtype() == DType::kInt32 || to.dtype() == DType::kInt64;
  if (whole && to.numel() <= kMostNumbers && to.numel() > 0 && std::abs(value) <= 0x1p31 - 1)
    return fill_numbers(memory, to, value);
  return fill_elements(memory.device(), to, value);
}

// Dims and value from tensors, which the processor reads.
StatusOr<Kernel> fill_given(const KernelSetup& op, double fixed) {
  if (kernels::makes_rows(op)) return refuse("Out is selected rows");
  return Kernel([&memory = memory_of(op), fixed, out = op.output("Out"),
                 shape = kernels::IntList(op, "shape", "ShapeTensor", "ShapeTensorList"),
                 call = std::make_shared<HostCall>(op), dtype = op.dtype_attr("dtype"),
                 value = op.input("ValueTensor"),
                 slots = std::vector<ArgRange>{
                     op.inputs("ShapeTensor"), op.inputs("ShapeTensorList"),
                     op.inputs("ValueTensor")}](const KernelContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(call->read(memory, ctx, slots));
    const KernelContext inside = call->context(ctx);
    MILLRACE_ASSIGN_OR_RETURN(const kernels::Ints dims, shape.read(inside));
    for (const int64_t dim : dims) {
      if (dim < 0) return refuse("a dim is {}", dim);
    }
    double number = fixed;
    if (const Tensor* const given = inside.find_in(value)) {
      if (given->numel() != 1 || given->dtype() == DType::kInt64) return refuse("ValueTensor");
      MILLRACE_RETURN_IF_ERROR(kernels::convert(given->dtype(), given->raw(), DType::kFloat64,
                                                reinterpret_cast<std::byte*>(&number), 1));
    }
    MILLRACE_RETURN_IF_ERROR(bits_of(dtype, number).status());
    MILLRACE_RETURN_IF_ERROR(size_here(memory, ctx.out(out), dtype, dims));
    return fill_constant(memory, ctx.out(out), number);
  });
}

StatusOr<Kernel> gpu_fill_constant(const KernelSetup& op) {
  if (op.def().find_attr("force_cpu") != nullptr && op.attr<bool>("force_cpu"))
    return refuse("attribute 'force_cpu' is set");
  const auto text = op.attr<std::string>("str_value");
  double value = op.attr<float>("value");
  if (!text.empty() && llvm::StringRef(text).getAsDouble(value))
    return refuse("attribute 'str_value' is '{}'", text);
  for (const char* const slot : {"ValueTensor", "ShapeTensor", "ShapeTensorList"}) {
    if (op.inputs(slot).count > 0) return fill_given(op, value);
  }
  return Kernel(
      [&memory = memory_of(op), value, out = op.output("Out")](const KernelContext& ctx) -> Status {
        Tensor& to = ctx.out(out);
        if (resident(to) == nullptr) return refuse("dims are not known before the op runs");
        return fill_constant(memory, to, value);
      });
}

StatusOr<Kernel> fill_like(const KernelSetup& op, double value) {
  return Kernel([&device = device_of(op), value, x = op.input("X"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor& to = ctx.out(out);
    if (resident(to) == nullptr || to.dims() != from->dims())
      return refuse("{} becomes {}", describe(*from), describe(to));
    // the CPU kernel reports numbers that do not fit
    if (to.dtype() == DType::kFloat32 && std::isfinite(value) &&
        !std::isfinite(static_cast<float>(value)))
      return refuse("the number is {}", value);
    return fill_elements(device, to, value);
  });
}
StatusOr<Kernel> gpu_fill_any_like(const KernelSetup& op) {
  return fill_like(op, op.attr<float>("value"));
}
StatusOr<Kernel> gpu_fill_zeros_like(const KernelSetup& op) {
  return fill_like(op, 0);
}

StatusOr<Kernel> copy(const KernelSetup& op, const char* from_slot, const char* to_slot) {
  return Kernel([&device = device_of(op), from = op.input(from_slot),
                 to = op.output(to_slot)](const KernelContext& ctx) -> Status {
    const Tensor* const x = ctx.find_in(from);
    Tensor* const y = ctx.find_out(to);
    if (x == nullptr || y == nullptr) return refuse("an argument is missing");
    if (x->dtype() != y->dtype() || x->numel() != y->numel())
      return refuse("{} becomes {}", describe(*x), describe(*y));
    if (x->raw() == y->raw() || x->bytes() == 0) return Ok();
    MILLRACE_RETURN_IF_ERROR(device.copy(x->raw(), y->raw(), x->bytes()));
    // ids keep their copy in process memory
    const ResidentLayout* const from_layout = resident(*x);
    const ResidentLayout* const to_layout = resident(*y);
    if (from_layout != nullptr && to_layout != nullptr)
      to_layout->set_host(from_layout->shared_host());
    return Ok();
  });
}

StatusOr<Kernel> gpu_assign(const KernelSetup& op) {
  return copy(op, "X", "Out");
}

// Shape inference on the CPU reads dims that are given as tensors.
StatusOr<Kernel> gpu_reshape(const KernelSetup& op) {
  for (const char* const slot : {"Shape", "ShapeTensor"}) {
    if (op.inputs(slot).count > 0) return refuse("dims given by {} are read on the CPU", slot);
  }
  return copy(op, "X", "Out");
}
StatusOr<Kernel> reshape_grad(const KernelSetup& op) {
  return copy(op, "Out@GRAD", "X@GRAD");
}

}  // namespace

void add_construct(KernelRegistry& registry) {
  registry.add("fill_constant", gpu_fill_constant);
  registry.add("fill_constant_batch_size_like", gpu_fill_constant);
  registry.add("fill_any_like", gpu_fill_any_like);
  registry.add("fill_zeros_like", gpu_fill_zeros_like);
  registry.add("fill_zeros_like2", gpu_fill_zeros_like);
  registry.add("assign", gpu_assign);
  registry.add("memcpy", gpu_assign);  // flags that others look at on the processor
  for (const char* const type :
       {"reshape", "reshape2", "flatten", "flatten2", "flatten_contiguous_range", "squeeze",
        "unsqueeze", "squeeze2", "unsqueeze2"})
    registry.add(type, gpu_reshape);
  for (const char* const type : {"reshape_grad", "reshape2_grad", "flatten_grad", "flatten2_grad",
                                 "flatten_contiguous_range_grad", "squeeze_grad", "unsqueeze_grad",
                                 "squeeze2_grad", "unsqueeze2_grad"})
    registry.add(type, reshape_grad);
}

}  // namespace millrace::gpu
