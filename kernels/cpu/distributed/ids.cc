#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "framework/row_owner.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// Sorting ids by server, and putting the responses back into the order of the ids.
namespace millrace::kernels {
namespace ids_kernels {
namespace {

Status check(const KernelContext& ctx, llvm::ArrayRef<int64_t> ids) {
  if (ids.empty() || ids.front() >= 0) return Ok();
  return ctx.error("Ids has {}, expected non-negative numbers", ids.front());
}

// \param ids  distinct, in ascending order
Status write(const KernelContext& ctx, llvm::ArrayRef<int64_t> ids, ArgRange out) {
  const auto servers = static_cast<int64_t>(out.count);
  for (int32_t k = 0; k < out.count; ++k) {
    if (!ctx.has_out(out, k)) continue;
    const int64_t count = std::count_if(
        ids.begin(), ids.end(), [&](int64_t id) { return server_of_row(id, servers) == k; });
    Tensor& to = ctx.out(out, k);
    MILLRACE_RETURN_IF_ERROR(size_output(to, DType::kInt64, {count, 1}));
    std::copy_if(ids.begin(), ids.end(), to.data<int64_t>(),
                 [&](int64_t id) { return server_of_row(id, servers) == k; });
  }
  return Ok();
}

// Rows with the same id are added up in input order before they are distributed.
Status split_merged(const KernelContext& ctx, RowMerger& merger, const SelectedRows& from,
                    ArgRange out) {
  MILLRACE_RETURN_IF_ERROR(merger.merge(from));
  const auto rows = merger.rows();
  const auto servers = static_cast<int64_t>(out.count);
  return dispatch<FloatTypes>(from.value.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    for (int32_t k = 0; k < out.count; ++k) {
      if (!ctx.has_out(out, k)) continue;
      auto& to = ctx.out_value(out, k).template as<SelectedRows>();
      to.height = from.height;
      to.rows.clear();
      for (const int64_t row : rows) {
        if (server_of_row(row, servers) == k) to.rows.push_back(row);
      }
      Dims dims(from.value.dims().begin(), from.value.dims().end());
      dims[0] = static_cast<int64_t>(to.rows.size());
      MILLRACE_RETURN_IF_ERROR(size_output(to.value, from.value.dtype(), dims));
      T* target = to.value.template data<T>();
      for (size_t i = 0; i < rows.size(); ++i) {
        if (server_of_row(rows[i], servers) != k) continue;
        const T* const source =
            merger.template values<T>() + static_cast<int64_t>(i) * merger.width();
        target = std::copy(source, source + merger.width(), target);
      }
    }
    return Ok();
  });
}

StatusOr<Kernel> split_ids(const KernelSetup& op) {
  const ArgRange ids_arg = op.inputs("Ids");
  const ArgRange out = op.outputs("Out");
  if (ids_arg.count == 0 || out.count == 0) return op.error("Ids or Out has no vars");
  const auto merger = std::make_shared<RowMerger>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (const auto* const rows = ctx.in_value(ids_arg, 0).get_if<SelectedRows>())
      return split_merged(ctx, *merger, *rows, out);
    Ints ids;
    for (int32_t k = 0; k < ids_arg.count; ++k)
      MILLRACE_RETURN_IF_ERROR(append_ints(ctx.in(ids_arg, k), "Ids", ids));
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    MILLRACE_RETURN_IF_ERROR(check(ctx, ids));
    return write(ctx, ids, out);
  });
}

// Where the row received for an id is stored.
using Places = std::unordered_map<int64_t, const std::byte*>;

StatusOr<Places> find_answers(const KernelContext& ctx, ArgRange rows_arg, ArgRange x) {
  Places places;
  const Tensor& like = ctx.in(x, 0);
  for (int32_t k = 0; k < rows_arg.count; ++k) {
    Ints rows;
    MILLRACE_RETURN_IF_ERROR(append_ints(ctx.in(rows_arg, k), "Rows", rows));
    const Tensor& answers = ctx.in(x, k);
    if (answers.rank() != 2 || answers.dims()[0] != static_cast<int64_t>(rows.size()) ||
        answers.dims()[1] != like.dims()[1] || answers.dtype() != like.dtype()) {
      return ctx.error("X[{}] must have {} rows like those of X[0] {}, found {}", k, rows.size(),
                       describe(like), describe(answers));
    }
    const int64_t bytes = answers.dims()[1] * dtype_size(answers.dtype());
    for (size_t i = 0; i < rows.size(); ++i)
      places[rows[i]] = answers.raw() + static_cast<int64_t>(i) * bytes;
  }
  return places;
}

StatusOr<Kernel> merge_ids(const KernelSetup& op) {
  const ArgRange ids_arg = op.inputs("Ids");
  const ArgRange rows_arg = op.inputs("Rows");
  const ArgRange x = op.inputs("X");
  const ArgRange out = op.outputs("Out");
  if (rows_arg.count != x.count || ids_arg.count != out.count || x.count == 0) {
    return op.error("Ids has {} vars, Rows {}, X {} and Out {}, expected a pair for each",
                    ids_arg.count, rows_arg.count, x.count, out.count);
  }
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (ctx.in(x, 0).rank() != 2)
      return ctx.error("X must hold matrices, found {}", describe(ctx.in(x, 0)));
    MILLRACE_ASSIGN_OR_RETURN(const Places places, find_answers(ctx, rows_arg, x));
    const int64_t width = ctx.in(x, 0).dims()[1];
    const DType dtype = ctx.in(x, 0).dtype();
    const auto bytes = static_cast<size_t>(width * dtype_size(dtype));
    for (int32_t k = 0; k < out.count; ++k) {
      if (!ctx.has_out(out, k)) continue;
      Ints ids;
      MILLRACE_RETURN_IF_ERROR(append_ints(ctx.in(ids_arg, k), "Ids", ids));
      Tensor& to = ctx.out(out, k);
      MILLRACE_RETURN_IF_ERROR(size_output(to, dtype, {static_cast<int64_t>(ids.size()), width}));
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto found = places.find(ids[i]);
        if (found == places.end())
          return ctx.error("Ids[{}] has {}, for which Rows has no entry", k, ids[i]);
        std::memcpy(to.raw() + i * bytes, found->second, bytes);
      }
    }
    return Ok();
  });
}

}  // namespace
}  // namespace ids_kernels

void add_distributed_ids(KernelRegistry& registry) {
  using namespace ids_kernels;
  registry.add("split_ids", split_ids);
  registry.add("merge_ids", merge_ids);
}

}  // namespace millrace::kernels
