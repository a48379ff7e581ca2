#include <algorithm>

#include "kernels/cpu/int_list.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// shape, size and shard_index: integer results about tensors and indices.
namespace millrace::kernels {
namespace {

const Tensor& tensor_of(const KernelContext& ctx, ArgIndex arg) {
  const auto* const rows = ctx.in_value(arg).get_if<SelectedRows>();
  return rows != nullptr ? rows->value : ctx.in(arg);
}

StatusOr<Kernel> shape(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const auto dims = tensor_of(ctx, input).dims();
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_output(to, DType::kInt32, {static_cast<int64_t>(dims.size())}));
    for (size_t i = 0; i < dims.size(); ++i) to.data<int32_t>()[i] = static_cast<int32_t>(dims[i]);
    return Ok();
  });
}

StatusOr<Kernel> size(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    *ctx.out(out).data<int64_t>() = tensor_of(ctx, input).numel();
    return Ok();
  });
}

StatusOr<Kernel> shard_index(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  const auto indices = op.attr<int64_t>("index_num");
  const auto shards = op.attr<int64_t>("nshards");
  const auto shard = op.attr<int64_t>("shard_id");
  const auto ignored = op.attr<int64_t>("ignore_value");
  if (indices < 1 || shards < 1)
    return op.error("attributes 'index_num' ({}) and 'nshards' ({}) must be positive", indices,
                    shards);
  const int64_t each = (indices + shards - 1) / shards;
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    return dispatch<IntTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* const out = ctx.out(out_arg).data<T>();
      for (int64_t i = 0; i < x.numel(); ++i) {
        const auto at = static_cast<int64_t>(x.data<T>()[i]);
        if (at < 0 || at >= indices)
          return ctx.error("X has {} at {}, expected a number in [0, {})", at, i, indices);
        out[i] = static_cast<T>(at / each == shard ? at % each : ignored);
      }
      return Ok();
    });
  });
}

}  // namespace

void add_tensor_shape(KernelRegistry& registry) {
  registry.add("shape", shape);
  registry.add("size", size);
  registry.add("shard_index", shard_index);
}

}  // namespace millrace::kernels
