#include "kernels/gpu/functors/embedding.h"
#include "kernels/gpu/ops/parts.h"
#include "kernels/gpu/ops/row_groups.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// Sums of several vars: dense tensors of one shape, or selected rows, which are joined.
namespace millrace::gpu {
namespace {

// Two at a time: these types are rare.
template <typename T>
Status add_pairs(Device& device, llvm::ArrayRef<const Tensor*> from, Tensor& to) {
  T* const sum = reinterpret_cast<T*>(to.raw());
  const auto* first = reinterpret_cast<const T*>(from[0]->raw());
  Walk<2> walk;
  walk.dense = true;
  for (const Tensor* const next : from.drop_front()) {
    const auto* const other = reinterpret_cast<const T*>(next->raw());
    if constexpr (std::is_floating_point_v<T>) {
      constexpr int32_t kAdd = formula_number<Add>(WideQuotients{});
      MILLRACE_RETURN_IF_ERROR(
          each(device, AnyBinary<WideQuotients, T, T>{first, other, sum, walk, kAdd}, to.numel()));
    } else {
      MILLRACE_RETURN_IF_ERROR(each(device, Binary<Add, T>{first, other, sum, walk}, to.numel()));
    }
    first = sum;
  }
  return Ok();
}

// from has at least two tensors of the type of `to`; the first may be `to`.
Status add_of_type(Device& device, llvm::ArrayRef<const Tensor*> from, Tensor& to) {
  switch (to.dtype()) {
    case DType::kFloat64:
      return add_pairs<double>(device, from, to);
    case DType::kInt32:
      return add_pairs<int32_t>(device, from, to);
    case DType::kInt64:
      return add_pairs<int64_t>(device, from, to);
    default:
      return refuse("the GPU kernel does not add {}", describe(to));
  }
}

Status add_tensors(Device& device, llvm::ArrayRef<const Tensor*> given, Tensor& to) {
  llvm::SmallVector<const Tensor*, 8> from;
  for (const Tensor* const x : given) {
    if (x->numel() == 0) continue;
    if (x->numel() != to.numel() || x->dtype() != to.dtype())
      return refuse("the GPU kernel adds dense tensors of one shape, found {}", describe(*x));
    from.push_back(x);
    // the content of the result is read first
    if (x->raw() == to.raw()) std::swap(from.front(), from.back());
  }
  if (to.dtype() != DType::kFloat32 && from.size() > 1) return add_of_type(device, from, to);
  MILLRACE_RETURN_IF_ERROR(all_floats({&to}));
  if (from.empty()) return each(device, Fill{floats(to), 0.0F}, to.numel());
  if (from.size() == 1) {
    return from[0]->raw() == to.raw() ? Ok() : device.copy(from[0]->raw(), to.raw(), to.bytes());
  }
  for (size_t k = 0; k < from.size();) {
    // every call but the first adds to what the one before has written
    SumOfMany sum{};
    sum.y = floats(to);
    if (k > 0) sum.x[sum.count++] = floats(to);
    while (k < from.size() && sum.count < SumOfMany::kMost) sum.x[sum.count++] = floats(from[k++]);
    MILLRACE_RETURN_IF_ERROR(each(device, sum, to.numel()));
  }
  return Ok();
}

// As on the CPU, the result has every row once.
Status add_selected(Memory& memory, GroupedRows& grouped, llvm::ArrayRef<const SelectedRows*> from,
                    SelectedRows& to) {
  std::vector<int64_t> rows;
  std::vector<Part> parts;
  Dims dims;
  for (const SelectedRows* const x : from) {
    const Tensor& value = x->value;
    if (x->rows.empty()) continue;
    Dims of_value(value.dims().begin(), value.dims().end());
    of_value[0] = 0;
    if (dims.empty()) dims = of_value;
    if (value.dtype() != DType::kFloat32 || of_value != dims || x->height != from[0]->height)
      return refuse("the GPU kernel adds rows of floats of one width");
    rows.insert(rows.end(), x->rows.begin(), x->rows.end());
    parts.push_back({value.raw(), value.numel()});
  }
  for (const int64_t row : rows) {
    if (row < 0 || row >= from[0]->height) return refuse("row {} of {}", row, from[0]->height);
  }
  int64_t width = 1;
  for (size_t i = 1; i < dims.size(); ++i) width *= dims[i];
  const auto count = static_cast<int64_t>(rows.size());
  if (rows.empty() || width == 0 || count * width >= int64_t{1} << 31)
    return refuse("{} rows of {} elements", count, width);
  MILLRACE_ASSIGN_OR_RETURN(
      const std::shared_ptr<Block> joined,
      memory.allocate(count * width * static_cast<int64_t>(sizeof(float)), "joined rows"));
  MILLRACE_RETURN_IF_ERROR(
      run_parts(memory.device(), /*cuts=*/false, parts, 1, sizeof(float), joined->data()));
  MILLRACE_RETURN_IF_ERROR(grouped.make(memory, rows, -1));
  SelectedRows made;
  made.height = from[0]->height;
  made.rows.assign(grouped.rows().begin(), grouped.rows().end());
  dims[0] = grouped.count();
  MILLRACE_RETURN_IF_ERROR(
      resize_resident(made.value, DType::kFloat32, dims, memory, "values of rows"));
  MILLRACE_RETURN_IF_ERROR(
      each(memory.device(),
           GroupSums{grouped.groups(reinterpret_cast<const float*>(joined->data()), width),
                     floats(made.value)},
           made.value.numel()));
  to = std::move(made);
  return Ok();
}

StatusOr<Kernel> gpu_sum(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), grouped = std::make_shared<GroupedRows>(),
                 x = op.inputs("X"), out = op.output("Out")](const KernelContext& ctx) -> Status {
    llvm::SmallVector<const Tensor*, 8> tensors;
    llvm::SmallVector<const SelectedRows*, 8> rows;
    for (int32_t k = 0; k < x.count; ++k) {
      if (!ctx.has_in(x, k)) return refuse("input {} is missing", k);
      const Value& value = ctx.in_value(x, k);
      if (const auto* const tensor = value.get_if<Tensor>()) tensors.push_back(tensor);
      if (const auto* const some = value.get_if<SelectedRows>()) rows.push_back(some);
    }
    const auto count = static_cast<size_t>(x.count);
    if (count > 0 && rows.size() == count)
      return add_selected(memory, *grouped, rows, ctx.out_value(out).as<SelectedRows>());
    if (count == 0 || tensors.size() != count)
      return refuse("the GPU kernel adds dense tensors, or rows");
    auto* const to = ctx.out_value(out).get_if<Tensor>();
    if (to == nullptr || !to->initialized()) return refuse("the result is not known");
    return add_tensors(memory.device(), tensors, *to);
  });
}

}  // namespace

void add_sum(KernelRegistry& registry) {
  registry.add("sum", gpu_sum);
}

}  // namespace millrace::gpu
