#include "kernels/cpu/index.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace one_hot_kernels {
namespace {

template <typename I, typename T>
Status write_rows(const I* classes, int64_t count, int64_t depth, bool allow_outside, T* out) {
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<int64_t>(classes[i]);
    if (at >= 0 && at < depth) {
      out[i * depth + at] = static_cast<T>(static_cast<Compute<T>>(1));
    } else if (!allow_outside) {
      return KernelContext::error("X has class {} at {}, expected one of [0, {})", at, i, depth);
    }
  }
  return Ok();
}

// \param replaces  the classes replace the last dim of X, which must be 1
StatusOr<Kernel> make(const KernelSetup& op, bool replaces) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex depth_arg = op.input("depth_tensor");
  const ArgIndex out_arg = op.output("Out");
  const auto fixed = op.attr<int64_t>("depth");
  const DType dtype = op.dtype_attr("dtype");
  const bool allow_outside = op.attr<bool>("allow_out_of_range");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    Tensor& out = ctx.out(out_arg);
    int64_t depth = fixed;
    if (const Tensor* const given = ctx.find_in(depth_arg)) {
      MILLRACE_ASSIGN_OR_RETURN(depth, one_int(*given, "depth_tensor"));
    }
    if (depth < 1) return ctx.error("the depth is {}, expected at least 1", depth);
    Dims dims(x.dims().begin(), x.dims().end());
    if (replaces) {
      if (dims.empty() || dims.back() != 1)
        return ctx.error("the last dim of X must be 1, found {}", describe(x));
      dims.pop_back();
    }
    dims.push_back(depth);
    MILLRACE_RETURN_IF_ERROR(size_output(out, dtype, dims));
    fill_zero(ctx.device(), out);
    return with_index(x, "X", [&](const auto* classes) -> Status {
      return dispatch<AllTypes>(dtype, [&](auto tag) -> Status {
        return write_rows(classes, x.numel(), depth, allow_outside,
                          out.data<typename decltype(tag)::type>());
      });
    });
  });
}

StatusOr<Kernel> one_hot(const KernelSetup& op) {
  return make(op, true);
}
StatusOr<Kernel> one_hot_v2(const KernelSetup& op) {
  return make(op, false);
}

}  // namespace
}  // namespace one_hot_kernels

void add_tensor_one_hot(KernelRegistry& registry) {
  using namespace one_hot_kernels;
  registry.add("one_hot", one_hot);
  registry.add("one_hot_v2", one_hot_v2);
}

}  // namespace millrace::kernels
