#include "kernels/gpu/functors/embedding.h"

#include <algorithm>

#include "kernels/cpu/embedding/ids.h"
#include "kernels/cpu/embedding/remote_rows.h"
#include "kernels/gpu/ops/row_groups.h"
#include "kernels/gpu/ops/walk.h"
#include "kernels/gpu/ops/words.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// Rows of a table by id, and the gradient of the table: dense, or the rows that were used.
namespace millrace::gpu {
namespace {

// The CPU kernel reports ids that are no rows. Checked only where the ids are in process memory.
Status check_known_ids(const Tensor& ids, int64_t height, int64_t padding) {
  const ResidentLayout* const there = resident(ids);
  if (there == nullptr || there->host() == nullptr) return Ok();
  const std::byte* const from = there->host()->raw();
  const Status checked =
      ids.dtype() == DType::kInt64
          ? kernels::check_ids(reinterpret_cast<const int64_t*>(from), ids.numel(), height, padding)
          : kernels::check_ids(reinterpret_cast<const int32_t*>(from), ids.numel(), height,
                               padding);
  return checked.ok() ? Ok() : refuse("{}", checked.message());
}

template <typename Word>
Word all_ones() {
  if constexpr (std::is_same_v<Word, WideWord>) {
    return WideWord{{~uint64_t{0}, ~uint64_t{0}}};
  } else {
    return static_cast<Word>(~Word{0});
  }
}

StatusOr<Kernel> gpu_lookup(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(kernels::check_rows_are_here(op, "W"));
  return Kernel([&device = device_of(op), w = op.input("W"), ids = op.input("Ids"),
                 out = op.output("Out"),
                 padding = op.attr<int64_t>("padding_idx")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const table, needed_here(ctx, w, "W"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const chosen, needed_here(ctx, ids, "Ids"));
    Tensor& to = ctx.out(out);
    if (table->rank() != 2 || to.dtype() != table->dtype() ||
        to.numel() != chosen->numel() * table->dim(1) || to.numel() >= int64_t{1} << 31)
      return refuse("W {} and Ids {} make {}", describe(*table), describe(*chosen), describe(to));
    const bool is_long = chosen->dtype() == DType::kInt64;
    if (!is_long && chosen->dtype() != DType::kInt32) return refuse("Ids {}", describe(*chosen));
    MILLRACE_RETURN_IF_ERROR(check_known_ids(*chosen, table->dim(0), padding));
    const int64_t row = table->dim(1) * dtype_size(table->dtype());
    if (row == 0) return Ok();
    const int64_t width = common_factor(16, {row, address_of(table->raw()), address_of(to.raw())});
    return with_word(width, [&](auto word) {
      using Word = decltype(word);
      const auto run = [&](const auto* at) {
        using Id = std::remove_cvref_t<decltype(*at)>;
        return each(device,
                    TakeRows<Word, Id>{reinterpret_cast<const Word*>(table->raw()), at,
                                       reinterpret_cast<Word*>(to.raw()), Divider(row / width),
                                       table->dim(0), padding, all_ones<Word>()},
                    to.bytes() / width);
      };
      return is_long ? run(reinterpret_cast<const int64_t*>(chosen->raw()))
                     : run(reinterpret_cast<const int32_t*>(chosen->raw()));
    });
  });
}

struct GpuLookupGrad {
  Memory* memory;
  ArgIndex w, ids, grad, w_grad;
  int64_t padding;
  bool sparse;
  std::shared_ptr<GroupedRows> grouped = std::make_shared<GroupedRows>();

  [[nodiscard]] Status dense(const KernelContext& ctx, const Tensor& table, const Tensor& d,
                             const std::vector<int64_t>& rows) const {
    Tensor* const to = ctx.out_value(w_grad).get_if<Tensor>();
    if (to == nullptr || to->dims() != table.dims() || to->dtype() != DType::kFloat32)
      return refuse("W@GRAD is not like W {}", describe(table));
    MILLRACE_RETURN_IF_ERROR(clear_elements(memory->device(), *to));
    if (rows.empty()) return Ok();
    MILLRACE_RETURN_IF_ERROR(grouped->make(*memory, rows, padding));
    const int64_t width = table.dim(1);
    return each(memory->device(), PutSums{grouped->groups(floats(d), width), floats(*to)},
                grouped->count() * width);
  }

  [[nodiscard]] Status selected(const KernelContext& ctx, const Tensor& table, const Tensor& d,
                                std::vector<int64_t> rows) const {
    auto& to = ctx.out_value(w_grad).as<SelectedRows>();
    const auto count = static_cast<int64_t>(rows.size());
    MILLRACE_RETURN_IF_ERROR(resize_resident(to.value, DType::kFloat32, {count, table.dim(1)},
                                             *memory, "values of rows"));
    to.rows = std::move(rows);
    to.height = table.dim(0);
    return d.bytes() == 0 ? Ok() : memory->device().copy(d.raw(), to.value.raw(), d.bytes());
  }

  Status operator()(const KernelContext& ctx) const {
    if (!w_grad) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const table, needed_here(ctx, w, "W"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const chosen, needed_here(ctx, ids, "Ids"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, grad, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(all_floats({d}));
    if (table->rank() != 2 || table->numel() == 0 ||
        d->numel() != chosen->numel() * table->dim(1) || d->numel() >= int64_t{1} << 31)
      return refuse("W {}, Ids {}, Out@GRAD {}", describe(*table), describe(*chosen), describe(*d));
    std::vector<int64_t> rows;
    MILLRACE_RETURN_IF_ERROR(read_ids(*memory, *chosen, rows));
    if (const Status checked =
            kernels::check_ids(rows.data(), chosen->numel(), table->dim(0), padding);
        !checked.ok())
      return refuse("{}", checked.message());
    return sparse ? selected(ctx, *table, *d, std::move(rows)) : dense(ctx, *table, *d, rows);
  }
};

StatusOr<Kernel> gpu_lookup_grad(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(kernels::check_rows_are_here(op, "W"));
  return Kernel(GpuLookupGrad{&memory_of(op), op.input("W"), op.input("Ids"), op.input("Out@GRAD"),
                              op.output("W@GRAD"), op.attr<int64_t>("padding_idx"),
                              op.attr<bool>("is_sparse")});
}

}  // namespace

void add_embedding(KernelRegistry& registry) {
  registry.add("lookup_table", gpu_lookup);
  registry.add("lookup_table_v2", gpu_lookup);
  registry.add("lookup_table_grad", gpu_lookup_grad);
  registry.add("lookup_table_v2_grad", gpu_lookup_grad);
}

}  // namespace millrace::gpu
