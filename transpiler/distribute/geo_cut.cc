#include "framework/names.h"
#include "transpiler/distribute/geo_passes.h"
#include "transpiler/distribute/pserver_builder.h"
#include "transpiler/distribute/server_job.h"

namespace millrace::transpiler {
namespace {

// Declares the slices, and "<p>.delta" for the whole and for each slice.
Status slice_param(Block& block, const DistributionJob& job, ParamGrad& pair) {
  const VarSpec whole = block.find_var(pair.param)->spec();
  StatusOr<std::vector<Slice>> slices = slice_variable(
      whole.dims, static_cast<int64_t>(job.endpoints.size()), job.config.min_block_size);
  if (!slices.ok()) {
    Location where;
    where.block = 0;
    where.var = pair.param;
    return std::move(slices).status().at(std::move(where));
  }
  const bool sparse = pair.grad_kind == VarKind::kSelectedRows;
  const VarKind delta_kind = sparse ? VarKind::kSelectedRows : pair.param_kind;
  const bool is_sliced = slices->size() > 1;
  block.declare(names::delta(pair.param), plain_spec(delta_kind, pair.dtype, whole.dims));
  for (size_t i = 0; i < slices->size(); ++i) {
    PlacedSlice placed;
    placed.slice = std::move((*slices)[i]);
    placed.param = is_sliced ? names::block(pair.param, static_cast<int64_t>(i)) : pair.param;
    if (is_sliced) {
      const Dims& dims = placed.slice.dims;
      block.declare(placed.param, plain_spec(pair.param_kind, pair.dtype, dims));
      block.declare(names::delta(placed.param), plain_spec(delta_kind, pair.dtype, dims));
    }
    pair.slices.push_back(std::move(placed));
  }
  return Ok();
}

}  // namespace

Status geo_cut(Program& main, PassContext& context, DistributionJob& job) {
  (void)context;
  for (ParamGrad& pair : job.pairs) MILLRACE_RETURN_IF_ERROR(slice_param(main.root(), job, pair));
  return place_in_order(main, job);
}

}  // namespace millrace::transpiler
