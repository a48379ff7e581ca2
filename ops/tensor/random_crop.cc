#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace random_crop {
namespace {

Status infer(InferContext& ctx) {
  ctx.copy("Seed", "SeedOut");
  VarMeta out = ctx.input("X");
  if (out.has_shape) {
    const auto shape = ctx.attr<std::vector<int64_t>>("shape");
    if (shape.size() > out.rank()) {
      return ctx.error("attribute 'shape' {} must not have more dims than X {}", dims_text(shape),
                       dims_text(out.dims));
    }
    const size_t lead = out.rank() - shape.size();
    for (size_t i = 0; i < shape.size(); ++i) {
      int64_t& dim = out.dims[lead + i];
      if (dim >= 0 && shape[i] > dim) {
        return ctx.error("attribute 'shape' has {} in dim {}, but X {} is smaller", shape[i],
                         lead + i, dims_text(out.dims));
      }
      dim = shape[i];
    }
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

}  // namespace
}  // namespace random_crop

void add_tensor_random_crop(OpRegistry& registry) {
  registry.add(OpDef("random_crop")
                   .doc("a window at a random position in the trailing dims, one per leading index")
                   .input("X", "at least as many dims as shape")
                   .input("Seed", "int64, one element; state of the generator")
                   .output("Out", "leading dims of X, then shape")
                   .output("SeedOut", "state for the next run")
                   .required_attr<std::vector<int32_t>>("shape", "size of the window")
                   .range(1)
                   .attr("startup_seed", 0, "state to start from where Seed has none")
                   .infer(random_crop::infer));
}

}  // namespace millrace::ops
