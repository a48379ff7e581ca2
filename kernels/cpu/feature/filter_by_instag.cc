#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Keeps the instances that have one of the filter's tags. Each row of IndexMap describes a kept
// instance: first row in Out, first row in Ins, number of rows.
namespace millrace::kernels {
namespace filter_by_instag_kernels {
namespace {

struct Instance {
  int64_t begin = 0;
  int64_t rows = 0;
};

StatusOr<std::vector<int64_t>> sorted_longs(const KernelContext& ctx, const Tensor& tensor) {
  if (tensor.dtype() != DType::kInt64)
    return ctx.error("tags must be i64, found {}", describe(tensor));
  const auto values = tensor.values<int64_t>();
  std::vector<int64_t> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// Instances that have at least one tag of the filter.
StatusOr<std::vector<Instance>> kept_instances(const KernelContext& ctx, const Tensor& ins,
                                               const Tensor& tags, const Tensor& filter,
                                               bool is_lod) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> wanted, sorted_longs(ctx, filter));
  if (tags.dtype() != DType::kInt64) return ctx.error("tags must be i64, found {}", describe(tags));
  const bool sequences = is_lod && !ins.lod().empty();
  const int64_t count = sequences ? ins.lod().sequences(0) : ins.dim(0);
  const int64_t tagged = tags.lod().empty() ? tags.dim(0) : tags.lod().sequences(0);
  if (sequences && ins.lod().level(0).back() > ins.dim(0))
    return ctx.error("LoD of Ins ends after the last row of {}", describe(ins));
  if (tagged != count)
    return ctx.error("Ins_tag must have tags for each of the {} instances, found {}", count,
                     tagged);
  std::vector<Instance> kept;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t begin = tags.lod().empty() ? i : tags.lod().level(0)[at];
    const int64_t end = tags.lod().empty() ? i + 1 : tags.lod().level(0)[at + 1];
    if (end > tags.numel())
      return ctx.error("LoD of Ins_tag ends after the last element of {}", describe(tags));
    const auto* const first = tags.data<int64_t>();
    const bool found = std::any_of(first + begin, first + end, [&](int64_t tag) {
      return std::binary_search(wanted.begin(), wanted.end(), tag);
    });
    if (!found) continue;
    const int64_t row = sequences ? ins.lod().level(0)[at] : i;
    kept.push_back({row, sequences ? ins.lod().level(0)[at + 1] - row : 1});
  }
  return kept;
}

struct OutputSlots {
  ArgIndex out;
  ArgIndex weight;
  ArgIndex map;
};

// Each row of weights and map is a sequence of length one.
void set_lods_of_ones(const KernelContext& ctx, const OutputSlots& slots, int64_t count) {
  LodLevel level(static_cast<size_t>(count) + 1);
  std::iota(level.begin(), level.end(), int64_t{0});
  ctx.out(slots.weight).set_lod(Lod({level}));
  ctx.out(slots.map).set_lod(Lod({std::move(level)}));
}

// One row of the given value, with loss weight 0.
Status store_nothing(const KernelContext& ctx, const OutputSlots& slots, const Tensor& ins,
                     int64_t value) {
  Dims dims(ins.dims().begin(), ins.dims().end());
  dims[0] = 1;
  Tensor& out = ctx.out(slots.out);
  MILLRACE_RETURN_IF_ERROR(out.resize(ins.dtype(), dims));
  MILLRACE_RETURN_IF_ERROR(dispatch<NumberTypes>(ins.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    std::fill_n(out.data<T>(), out.numel(), static_cast<T>(value));
    return Ok();
  }));
  out.set_lod(Lod({{0, 1}}));
  MILLRACE_RETURN_IF_ERROR(ctx.out(slots.weight).resize(DType::kFloat32, {1, 1}));
  *ctx.out(slots.weight).data<float>() = 0;
  MILLRACE_RETURN_IF_ERROR(ctx.out(slots.map).resize(DType::kInt64, {1, 3}));
  constexpr int64_t kNothing[] = {0, 1, 1};  // the gradient op recognizes it by the weight of 0
  std::copy_n(kNothing, 3, ctx.out(slots.map).data<int64_t>());
  set_lods_of_ones(ctx, slots, 1);
  return Ok();
}

Status store(const KernelContext& ctx, const OutputSlots& slots, const Tensor& ins,
             const std::vector<Instance>& kept) {
  const auto count = static_cast<int64_t>(kept.size());
  LodLevel level{0};
  for (const Instance& instance : kept) level.push_back(level.back() + instance.rows);
  Dims dims(ins.dims().begin(), ins.dims().end());
  dims[0] = level.back();
  Tensor& out = ctx.out(slots.out);
  Tensor& weight = ctx.out(slots.weight);
  Tensor& map = ctx.out(slots.map);
  MILLRACE_RETURN_IF_ERROR(out.resize(ins.dtype(), dims));
  MILLRACE_RETURN_IF_ERROR(weight.resize(DType::kFloat32, {count, 1}));
  MILLRACE_RETURN_IF_ERROR(map.resize(DType::kInt64, {count, 3}));
  const int64_t row_bytes = row_width(ins) * dtype_size(ins.dtype());
  for (size_t i = 0; i < kept.size(); ++i) {
    const int64_t bytes = kept[i].rows * row_bytes;
    if (bytes > 0)
      std::memcpy(out.raw() + level[i] * row_bytes, ins.raw() + kept[i].begin * row_bytes,
                  static_cast<size_t>(bytes));
    weight.data<float>()[i] = 1;
    const int64_t entry[] = {level[i], kept[i].begin, kept[i].rows};
    std::copy_n(entry, 3, map.data<int64_t>() + 3 * i);
  }
  out.set_lod(Lod({std::move(level)}));
  set_lods_of_ones(ctx, slots, count);
  return Ok();
}

StatusOr<Kernel> filter_by_instag(const KernelSetup& op) {
  const ArgIndex ins = op.input("Ins");
  const ArgIndex tags = op.input("Ins_tag");
  const ArgIndex filter = op.input("Filter_tag");
  const OutputSlots slots{op.output("Out"), op.output("LossWeight"), op.output("IndexMap")};
  const bool is_lod = op.attr<bool>("is_lod");
  const auto value_if_empty = op.attr<int64_t>("out_val_if_empty");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(ins);
    if (from.rank() == 0) return ctx.error("Ins must have rows, found {}", describe(from));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<Instance> kept,
                              kept_instances(ctx, from, ctx.in(tags), ctx.in(filter), is_lod));
    if (kept.empty()) return store_nothing(ctx, slots, from, value_if_empty);
    return store(ctx, slots, from, kept);
  });
}

StatusOr<Kernel> filter_by_instag_grad(const KernelSetup& op) {
  const ArgIndex map = op.input("IndexMap");
  const ArgIndex weight = op.input("LossWeight");
  const ArgIndex ins = op.input("Ins");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dins = op.output("Ins@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dins) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const moves, needed(ctx, map, "IndexMap"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, ins, "Ins"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dins, *from));
    if (moves->dtype() != DType::kInt64 || moves->numel() % 3 != 0 || d->dtype() != from->dtype() ||
        row_width(*d) != row_width(*from))
      return ctx.error("IndexMap {} and Out@GRAD {} must fit Ins {}", describe(*moves),
                       describe(*d), describe(*from));
    const int64_t row_bytes = row_width(*from) * dtype_size(from->dtype());
    if (to->bytes() > 0) std::memset(to->raw(), 0, static_cast<size_t>(to->bytes()));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const weights, needed(ctx, weight, "LossWeight"));
    if (weights->dtype() == DType::kFloat32 && weights->numel() == 1 &&
        *weights->data<float>() == 0)
      return Ok();  // nothing was kept
    for (int64_t i = 0; i < moves->numel(); i += 3) {
      const int64_t* const move = moves->data<int64_t>() + i;
      if (move[2] == 0) continue;
      if (move[0] < 0 || move[1] < 0 || move[2] < 0 || move[0] + move[2] > d->dim(0) ||
          move[1] + move[2] > from->dim(0))
        return ctx.error("IndexMap moves {} rows from {} to {}, which is out of range", move[2],
                         move[1], move[0]);
      std::memcpy(to->raw() + move[1] * row_bytes, d->raw() + move[0] * row_bytes,
                  static_cast<size_t>(move[2] * row_bytes));
    }
    return Ok();
  });
}

}  // namespace
}  // namespace filter_by_instag_kernels

void add_feature_filter_by_instag(KernelRegistry& registry) {
  using namespace filter_by_instag_kernels;
  registry.add("filter_by_instag", filter_by_instag);
  registry.add("filter_by_instag_grad", filter_by_instag_grad);
}

}  // namespace millrace::kernels
