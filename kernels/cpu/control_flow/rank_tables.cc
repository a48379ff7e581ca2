#include <algorithm>

#include "kernels/cpu/control_flow/row_pieces.h"
#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// Sequences ordered by length (the rank table) and split into one tensor per time step. An "entry"
// is what a time step takes from a sequence: a row, or a sequence of the next LoD level.
namespace millrace::kernels {
namespace rank_tables {
namespace {

StatusOr<const RankTable*> table_of(const KernelContext& ctx, ArgIndex arg) {
  if (const auto* const table = ctx.in_value(arg).get_if<RankTable>()) return table;
  return ctx.error("RankTable must be a rank table, found {}", describe(ctx.in_value(arg)));
}

// Offsets of the ranked level, in the original order of the sequences.
LodLevel offsets_of(const RankTable& table) {
  LodLevel offsets(table.items.size() + 1, 0);
  for (const RankTable::Item& item : table.items)
    offsets[static_cast<size_t>(item.index) + 1] = item.length;
  for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
  return offsets;
}

StatusOr<Kernel> lod_rank_table(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out = op.output("Out");
  const auto level = static_cast<size_t>(op.attr<int64_t>("level"));
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Lod& lod = ctx.in(x_arg).lod();
    if (level >= lod.size())
      return ctx.error("attribute 'level' is {}, but X has {} LoD levels", level, lod.size());
    auto& table = ctx.out_value(out).as<RankTable>();
    const auto offsets = lod.level(level);
    table.coarse_lod =
        level == 0
            ? Lod()
            : Lod(std::vector<LodLevel>(lod.levels().begin(),
                                        lod.levels().begin() + static_cast<std::ptrdiff_t>(level)));
    table.items.clear();
    for (size_t i = 0; i + 1 < offsets.size(); ++i)
      table.items.push_back({static_cast<int64_t>(i), offsets[i + 1] - offsets[i]});
    std::stable_sort(
        table.items.begin(), table.items.end(),
        [](const RankTable::Item& a, const RankTable::Item& b) { return a.length > b.length; });
    return Ok();
  });
}

StatusOr<Kernel> max_sequence_len(const KernelSetup& op) {
  const ArgIndex table_arg = op.input("RankTable");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RankTable* const table, table_of(ctx, table_arg));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_output(to, DType::kInt64, {1}));
    *to.data<int64_t>() = table->items.empty() ? 0 : table->items.front().length;
    return Ok();
  });
}

// The arguments of ops that order or split X by a rank table.
struct RankedArgs {
  explicit RankedArgs(const KernelSetup& op)
      : x(op.input("X")), table(op.input("RankTable")), out(op.output("Out")) {}
  ArgIndex x, table, out;
};

StatusOr<Kernel> lod_tensor_to_array(const KernelSetup& op) {
  const RankedArgs args(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RankTable* const table, table_of(ctx, args.table));
    const Tensor& x = ctx.in(args.x);
    const size_t level = table->coarse_lod.size();
    const LodLevel offsets = offsets_of(*table);
    const size_t finer = x.lod().size() > level + 1 ? x.lod().size() - level - 1 : 0;
    const size_t entry_level = x.lod().size() > level ? level + 1 : x.lod().size();
    const int64_t steps = table->items.empty() ? 0 : table->items.front().length;
    TensorArray array(static_cast<size_t>(steps));
    for (int64_t t = 0; t < steps; ++t) {
      RowPieces pieces(finer);
      for (const RankTable::Item& item : table->items) {
        if (item.length <= t) break;
        MILLRACE_RETURN_IF_ERROR(
            pieces.append(x, entry_level, offsets[static_cast<size_t>(item.index)] + t));
      }
      Tensor& element = array[static_cast<size_t>(t)];
      MILLRACE_RETURN_IF_ERROR(pieces.write(x, element));
      if (finer > 0) element.set_lod(Lod(std::move(pieces.lod())));
    }
    ctx.out_value(args.out).as<TensorArray>() = std::move(array);
    return Ok();
  });
}

StatusOr<Kernel> array_to_lod_tensor(const KernelSetup& op) {
  const RankedArgs args(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RankTable* const table, table_of(ctx, args.table));
    const auto* const array = ctx.in_value(args.x).get_if<TensorArray>();
    const int64_t steps = table->items.empty() ? 0 : table->items.front().length;
    if (array == nullptr || array->empty() || static_cast<int64_t>(array->size()) < steps) {
      return ctx.error("X must be an array of at least {} tensors, found {}", steps,
                       describe(ctx.in_value(args.x)));
    }
    // position of each sequence in the order of the table
    std::vector<size_t> rank(table->items.size());
    for (size_t r = 0; r < rank.size(); ++r) rank[static_cast<size_t>(table->items[r].index)] = r;
    const size_t finer = array->front().lod().size();
    RowPieces pieces(finer);
    for (const size_t r : rank) {
      for (int64_t t = 0; t < table->items[r].length; ++t) {
        const Tensor& element = (*array)[static_cast<size_t>(t)];
        MILLRACE_RETURN_IF_ERROR(pieces.append(element, 0, static_cast<int64_t>(r)));
      }
    }
    Tensor& to = ctx.out(args.out);
    MILLRACE_RETURN_IF_ERROR(pieces.write(array->front(), to));
    std::vector<LodLevel> levels = table->coarse_lod.levels();
    levels.push_back(offsets_of(*table));
    for (LodLevel& level : pieces.lod()) levels.push_back(std::move(level));
    to.set_lod(Lod(std::move(levels)));
    return Ok();
  });
}

StatusOr<Kernel> shrink_rnn_memory(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex table_arg = op.input("RankTable");
  const ArgIndex step_arg = op.input("I");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RankTable* const table, table_of(ctx, table_arg));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t step, one_int(ctx.in(step_arg), "I"));
    const Tensor& x = ctx.in(x_arg);
    RowPieces pieces(x.lod().size());
    int64_t running = 0;
    for (const RankTable::Item& item : table->items) {
      if (item.length <= step) break;
      MILLRACE_RETURN_IF_ERROR(pieces.append(x, 0, running++));
    }
    Tensor shrunk;  // the output may be the same tensor as the input
    MILLRACE_RETURN_IF_ERROR(pieces.write(x, shrunk));
    if (!x.lod().empty()) shrunk.set_lod(Lod(std::move(pieces.lod())));
    ctx.out(out) = std::move(shrunk);
    return Ok();
  });
}

StatusOr<Kernel> shrink_rnn_memory_grad(const KernelSetup& op) {
  const GradientArgs gradient(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kUnset);
    if (!g) return Ok();
    if (!g.from->initialized()) {
      fill_zero(ctx.device(), *g.to);
      return Ok();
    }
    if (g.from->dtype() != g.to->dtype() || g.from->bytes() > g.to->bytes())
      return ctx.error("Out@GRAD {} has more rows than X {}", describe(*g.from), describe(*g.to));
    std::memcpy(g.to->raw(), g.from->raw(), static_cast<size_t>(g.from->bytes()));
    std::memset(g.to->raw() + g.from->bytes(), 0,
                static_cast<size_t>(g.to->bytes() - g.from->bytes()));
    return Ok();
  });
}

// \param back  restores the original order of sequences that are in the order of the table
StatusOr<Kernel> make_reorder(const KernelSetup& op, bool back) {
  const RankedArgs args(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RankTable* const table, table_of(ctx, args.table));
    const Tensor& x = ctx.in(args.x);
    std::vector<int64_t> from(table->items.size());
    for (size_t r = 0; r < from.size(); ++r) {
      const int64_t index = table->items[r].index;
      if (back) {
        from[static_cast<size_t>(index)] = static_cast<int64_t>(r);
      } else {
        from[r] = index;
      }
    }
    RowPieces pieces(x.lod().size());
    for (const int64_t entry : from) MILLRACE_RETURN_IF_ERROR(pieces.append(x, 0, entry));
    Tensor moved;
    MILLRACE_RETURN_IF_ERROR(pieces.write(x, moved));
    if (!x.lod().empty()) moved.set_lod(Lod(std::move(pieces.lod())));
    ctx.out(args.out) = std::move(moved);
    return Ok();
  });
}

StatusOr<Kernel> reorder(const KernelSetup& op) {
  return make_reorder(op, /*back=*/false);
}
StatusOr<Kernel> reorder_back(const KernelSetup& op) {
  return make_reorder(op, /*back=*/true);
}

}  // namespace
}  // namespace rank_tables

void add_control_flow_rank_tables(KernelRegistry& registry) {
  using namespace rank_tables;
  registry.add("lod_rank_table", lod_rank_table);
  registry.add("max_sequence_len", max_sequence_len);
  registry.add("lod_tensor_to_array", lod_tensor_to_array);
  registry.add("array_to_lod_tensor", array_to_lod_tensor);
  registry.add("shrink_rnn_memory", shrink_rnn_memory);
  registry.add("shrink_rnn_memory_grad", shrink_rnn_memory_grad);
  registry.add("reorder_lod_tensor_by_rank", reorder);
  registry.add("reorder_lod_tensor_by_rank_grad", reorder_back);
}

}  // namespace millrace::kernels
