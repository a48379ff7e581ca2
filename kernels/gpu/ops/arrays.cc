#include "kernels/gpu/ops/row_groups.h"
#include "kernels/gpu/resident_values.h"
#include "kernels/registry.h"

// Elements of tensor arrays, and selections between vars: copies within device memory. Indices are
// read where the processor has them.
namespace millrace::gpu {
namespace array_elements {
namespace {

// A longer array is treated as the result of a wrong index, which the CPU kernel reports.
constexpr int64_t kMostElements = int64_t{1} << 30;

// One index. Errors: rejects other tensors, and indices outside of [0, count).
StatusOr<int64_t> index_here(Memory& memory, const KernelContext& ctx, ArgIndex arg,
                             int64_t count) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed_here(ctx, arg, "an index"));
  std::vector<int64_t> numbers;
  MILLRACE_RETURN_IF_ERROR(read_ids(memory, *given, numbers));
  if (numbers.size() != 1 || numbers[0] < 0 || numbers[0] >= count)
    return refuse("an index is {}", describe(*given));
  return numbers[0];
}

StatusOr<Kernel> gpu_write_element(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), x = op.input("X"), index = op.input("I"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t at, index_here(memory, ctx, index, kMostElements));
    const auto place = static_cast<size_t>(at);
    auto& array = ctx.out_value(out).as<TensorArray>();
    if (place >= array.size()) array.resize(place + 1);
    return copy_value_of(*from, array[place]);
  });
}

StatusOr<Kernel> gpu_read_element(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), x = op.input("X"), index = op.input("I"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    const auto* const array = ctx.in_value(x).get_if<TensorArray>();
    if (array == nullptr) return refuse("X {}", describe(ctx.in_value(x)));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t at,
                              index_here(memory, ctx, index, static_cast<int64_t>(array->size())));
    const Tensor& element = (*array)[static_cast<size_t>(at)];
    if (!element.initialized()) return refuse("element {} of X holds no tensor", at);
    return copy_value_of(element, ctx.out(out));
  });
}

StatusOr<Kernel> gpu_select_input(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), x = op.inputs("X"), mask = op.input("Mask"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t at, index_here(memory, ctx, mask, x.count));
    const auto k = static_cast<int32_t>(at);
    const auto* const from = ctx.has_in(x, k) ? ctx.in_value(x, k).get_if<Tensor>() : nullptr;
    if (from == nullptr || !from->initialized()) return refuse("X[{}] holds no tensor", at);
    return copy_value_of(*from, ctx.out_value(out).as<Tensor>());
  });
}

StatusOr<Kernel> gpu_select_output(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), x = op.input("X"), mask = op.input("Mask"),
                 out = op.outputs("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t at, index_here(memory, ctx, mask, out.count));
    for (int32_t k = 0; k < out.count; ++k) {
      if (!ctx.has_out(out, k)) continue;
      if (k == at) {
        MILLRACE_RETURN_IF_ERROR(copy_value_of(*from, ctx.out_value(out, k).as<Tensor>()));
        continue;
      }
      // as on the CPU: no op may read values that an earlier run left
      auto* const left = ctx.out_value(out, k).get_if<Tensor>();
      if (left == nullptr || !left->initialized()) continue;
      const Tensor like = left->share();
      MILLRACE_RETURN_IF_ERROR(make_zeros_like(like, *left));
    }
    return Ok();
  });
}

}  // namespace
}  // namespace array_elements

void add_arrays(KernelRegistry& registry) {
  using namespace array_elements;
  registry.add("write_to_array", gpu_write_element);
  registry.add("read_from_array", gpu_read_element);
  registry.add("select_input", gpu_select_input);
  registry.add("select_output", gpu_select_output);
}

}  // namespace millrace::gpu
