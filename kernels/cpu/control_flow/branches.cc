#include "kernels/cpu/control_flow/row_pieces.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// Selecting between vars, and splitting rows by a mask.
namespace millrace::kernels {
namespace {

StatusOr<int32_t> chosen(const KernelContext& ctx, ArgIndex mask, int32_t count) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t at, one_int(ctx.in(mask), "Mask"));
  if (at < 0 || at >= count) return ctx.error("Mask is {}, expected one of [0, {})", at, count);
  return static_cast<int32_t>(at);
}

Status copy_value(const Value& from, Value& to) {
  if (&from == &to) return Ok();
  if (const auto* const tensor = from.get_if<Tensor>()) return to.as<Tensor>().copy_from(*tensor);
  MILLRACE_ASSIGN_OR_RETURN(to, clone(from));
  return Ok();
}

StatusOr<Kernel> select_input(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgIndex mask = op.input("Mask");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const int32_t at, chosen(ctx, mask, x.count));
    if (!ctx.has_in(x, at) || !ctx.in_value(x, at).initialized())
      return ctx.error("Mask is {}, but X[{}] holds no value", at, at);
    return copy_value(ctx.in_value(x, at), ctx.out_value(out));
  });
}

// The vars of the other branches are set to zero if they are tensors, so that no op reads values
// left from an earlier run.
StatusOr<Kernel> select_output(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex mask = op.input("Mask");
  const ArgRange out = op.outputs("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const int32_t at, chosen(ctx, mask, out.count));
    for (int32_t k = 0; k < out.count; ++k) {
      if (!ctx.has_out(out, k)) continue;
      if (k == at) {
        MILLRACE_RETURN_IF_ERROR(copy_value(ctx.in_value(x), ctx.out_value(out, k)));
      } else if (auto* const tensor = ctx.out_value(out, k).get_if<Tensor>();
                 tensor != nullptr && tensor->initialized()) {
        fill_zero(ctx.device(), *tensor);
      }
    }
    return Ok();
  });
}

// Calls fn(entry, taken) for every entry of a LoD level of x; for every row if x has no LoD.
template <typename Fn>
Status each_masked(const KernelContext& ctx, const Tensor& x, const Tensor& mask, size_t level,
                   Fn&& fn) {
  const int64_t entries = !x.lod().empty() && level < x.lod().size() ? x.lod().sequences(level)
                          : x.rank() == 0                            ? 1
                                                                     : x.dims()[0];
  if (mask.dtype() != DType::kBool || mask.numel() != entries)
    return ctx.error("Mask must have a bool for each of {} sequences, found {}", entries,
                     describe(mask));
  for (int64_t i = 0; i < entries; ++i) MILLRACE_RETURN_IF_ERROR(fn(i, mask.data<bool>()[i]));
  return Ok();
}

StatusOr<Kernel> split_lod_tensor(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex mask = op.input("Mask");
  const ArgIndex if_true = op.output("OutTrue");
  const ArgIndex if_false = op.output("OutFalse");
  const auto level = static_cast<size_t>(op.attr<int64_t>("level"));
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const size_t finer = x.lod().size() > level ? x.lod().size() - level : 0;
    const size_t from = std::min(level, x.lod().size());
    RowPieces taken(finer);
    RowPieces left(finer);
    MILLRACE_RETURN_IF_ERROR(
        each_masked(ctx, x, ctx.in(mask), level, [&](int64_t entry, bool take) -> Status {
          return (take ? taken : left).append(x, from, entry);
        }));
    for (const auto& [arg, pieces] : {std::pair(if_true, &taken), std::pair(if_false, &left)}) {
      Tensor* const out = ctx.find_out(arg);
      if (out == nullptr) continue;
      MILLRACE_RETURN_IF_ERROR(pieces->write(x, *out));
      out->set_lod(finer > 0 ? Lod(std::move(pieces->lod())) : Lod());
    }
    return Ok();
  });
}

// A branch has as many entries as the mask takes from it; others would be lost.
Status check_all_taken(const KernelContext& ctx, const Tensor& branch, const char* slot,
                       int64_t taken) {
  if (branch.rank() == 0) return Ok();
  const int64_t entries = branch.lod().empty() ? branch.dims()[0] : branch.lod().sequences(0);
  if (entries == taken) return Ok();
  return ctx.error("{} has {} entries, but Mask takes {}", slot, entries, taken);
}

StatusOr<Kernel> merge_lod_tensor(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex mask = op.input("Mask");
  const ArgIndex in_true = op.input("InTrue");
  const ArgIndex in_false = op.input("InFalse");
  const ArgIndex out = op.output("Out");
  const auto level = static_cast<size_t>(op.attr<int64_t>("level"));
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const Tensor& yes = ctx.in(in_true);
    const Tensor& no = ctx.in(in_false);
    const size_t finer = std::max(yes.lod().size(), no.lod().size());
    RowPieces pieces(finer);
    int64_t next_yes = 0;
    int64_t next_no = 0;
    MILLRACE_RETURN_IF_ERROR(
        each_masked(ctx, x, ctx.in(mask), level, [&](int64_t /*entry*/, bool take) -> Status {
          return take ? pieces.append(yes, 0, next_yes++) : pieces.append(no, 0, next_no++);
        }));
    MILLRACE_RETURN_IF_ERROR(check_all_taken(ctx, yes, "InTrue", next_yes));
    MILLRACE_RETURN_IF_ERROR(check_all_taken(ctx, no, "InFalse", next_no));
    Tensor merged;
    MILLRACE_RETURN_IF_ERROR(pieces.write(yes.numel() > 0 ? yes : no, merged));
    std::vector<LodLevel> levels;
    // the levels above those of the branches, if the branches have any levels
    for (size_t i = 0; finer > 0 && i < level && i < x.lod().size(); ++i)
      levels.emplace_back(x.lod().level(i).begin(), x.lod().level(i).end());
    for (LodLevel& lod : pieces.lod()) levels.push_back(std::move(lod));
    merged.set_lod(levels.empty() ? Lod() : Lod(std::move(levels)));
    ctx.out(out) = std::move(merged);
    return Ok();
  });
}

}  // namespace

void add_control_flow_branches(KernelRegistry& registry) {
  registry.add("select_input", select_input);
  registry.add("select_output", select_output);
  registry.add("split_lod_tensor", split_lod_tensor);
  registry.add("merge_lod_tensor", merge_lod_tensor);
  registry.add("merge_lod_tensor_infer", merge_lod_tensor);
}

}  // namespace millrace::kernels
