#include <algorithm>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// flip, reverse and roll: reorder elements along dims.
namespace millrace::kernels {
namespace {

Status reverse_tensor(const KernelContext& ctx, const Tensor& x, const std::vector<int64_t>& axes,
                      Tensor& out) {
  StridedBox box;
  box.dims.assign(x.dims().begin(), x.dims().end());
  box.to = row_major(x.dims());
  box.from = box.to;
  int64_t offset = 0;
  for (const int64_t axis_attr : axes) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, axis_of(axis_attr, x.rank()));
    const auto at = static_cast<size_t>(axis);
    if (box.dims.empty() || box.from[at] < 0 || x.numel() == 0) continue;
    offset += (box.dims[at] - 1) * box.from[at];
    box.from[at] = -box.from[at];
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const bytes, bytes_apart(ctx.device(), x, out));
  const int64_t size = dtype_size(x.dtype());
  copy_strided(ctx.device(), size, box, out.raw(), bytes + offset * size);
  return Ok();
}

StatusOr<Kernel> reverse(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const auto axes = op.attr<std::vector<int64_t>>("axis");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (const auto* const array = ctx.in_value(x).get_if<TensorArray>()) {
      TensorArray result(array->size());
      for (size_t i = 0; i < array->size(); ++i)
        MILLRACE_RETURN_IF_ERROR(result[array->size() - 1 - i].copy_from((*array)[i]));
      ctx.out_value(out).as<TensorArray>() = std::move(result);
      return Ok();
    }
    const Tensor* const from = ctx.find_in(x);
    if (from == nullptr) return ctx.error("input X holds no tensor");
    return reverse_tensor(ctx, *from, axes, ctx.out(out));
  });
}

// Distance by which each dim moves, in [0, dim).
StatusOr<Dims> distances(const KernelContext& ctx, llvm::ArrayRef<int64_t> dims, const Ints& shifts,
                         const std::vector<int64_t>& axes, bool backwards) {
  if (shifts.size() != axes.size())
    return ctx.error("there are {} shifts for {} axes", shifts.size(), axes.size());
  Dims moved(dims.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, axis_of(axes[i], dims.size()));
    const auto at = static_cast<size_t>(axis);
    if (dims.empty() || dims[at] == 0) continue;
    const int64_t shift = (backwards ? -1 : 1) * (shifts[i] % dims[at]);
    moved[at] = ((moved[at] + shift) % dims[at] + dims[at]) % dims[at];
  }
  return moved;
}

// Each rolled dim is split into two parts; every combination of parts is one box to copy.
void copy_parts(CpuDevice& device, llvm::ArrayRef<int64_t> dims, const Dims& moved, int64_t size,
                std::byte* to, const std::byte* from) {
  Ints cut;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (moved[i] != 0) cut.push_back(static_cast<int64_t>(i));
  }
  const Dims strides = row_major(dims);
  for (uint64_t choice = 0; choice < uint64_t{1} << cut.size(); ++choice) {
    StridedBox box;
    box.dims.assign(dims.begin(), dims.end());
    box.to = strides;
    box.from = strides;
    int64_t to_offset = 0;
    int64_t from_offset = 0;
    for (size_t c = 0; c < cut.size(); ++c) {
      const auto at = static_cast<size_t>(cut[c]);
      const bool wraps = (choice >> c & 1U) != 0;  // the part that wraps around to the front
      box.dims[at] = wraps ? moved[at] : dims[at] - moved[at];
      (wraps ? from_offset : to_offset) += (wraps ? dims[at] - moved[at] : moved[at]) * strides[at];
    }
    copy_strided(device, size, box, to + to_offset * size, from + from_offset * size);
  }
}

StatusOr<Kernel> make_roll(const KernelSetup& op, llvm::StringRef in, llvm::StringRef out,
                           bool backwards) {
  const GradientArgs args = GradientArgs::named(op, in, out);
  const IntList shifts(op, "shifts", "ShiftsTensor");
  const auto axes = op.attr<std::vector<int64_t>>("axis");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = args.find(ctx, StartsAs::kUnset);
    if (!g) return Ok();
    if (g.from->numel() != g.to->numel() || g.from->dtype() != g.to->dtype())
      return ctx.error("the input is {}, but the result is {}", describe(*g.from), describe(*g.to));
    MILLRACE_ASSIGN_OR_RETURN(const Ints by, shifts.read(ctx));
    const int64_t flat[] = {g.from->numel()};
    const llvm::ArrayRef<int64_t> dims =
        axes.empty() ? llvm::ArrayRef<int64_t>(flat) : g.from->dims();
    MILLRACE_ASSIGN_OR_RETURN(
        const Dims moved,
        distances(ctx, dims, by, axes.empty() ? std::vector<int64_t>{0} : axes, backwards));
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const bytes,
                              bytes_apart(ctx.device(), *g.from, *g.to));
    copy_parts(ctx.device(), dims, moved, dtype_size(g.from->dtype()), g.to->raw(), bytes);
    return Ok();
  });
}

StatusOr<Kernel> roll(const KernelSetup& op) {
  return make_roll(op, "X", "Out", /*backwards=*/false);
}
StatusOr<Kernel> roll_grad(const KernelSetup& op) {
  return make_roll(op, "Out@GRAD", "X@GRAD", /*backwards=*/true);
}

}  // namespace

void add_tensor_reverse(KernelRegistry& registry) {
  registry.add("flip", reverse);
  registry.add("reverse", reverse);
  registry.add("roll", roll);
  registry.add("roll_grad", roll_grad);
}

}  // namespace millrace::kernels
