#include <algorithm>
#include <vector>

#include "kernels/cpu/labels.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Sequences of ids.
namespace millrace::kernels {
namespace tokens_kernels {
namespace {

using SequencesOf = StatusOr<llvm::ArrayRef<int64_t>>(const Tensor&, const char*);

// Offsets of the sequences of X. Errors: none, or rows of several tokens.
StatusOr<llvm::ArrayRef<int64_t>> token_sequences(const KernelContext& ctx, const Tensor& x,
                                                  SequencesOf* find) {
  MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, find(x, "X"));
  if (x.numel() != x.dim(0))
    return ctx.error("X must have one token per row, found {}", describe(x));
  return offsets;
}

// Calls body(tokens of X, offsets of its sequences); it returns a Status.
template <typename Body>
Status with_tokens(const KernelContext& ctx, const Tensor& x, SequencesOf* find, Body&& body) {
  MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, token_sequences(ctx, x, find));
  return dispatch<IntTypes>(x.dtype(), [&](auto tag) -> Status {
    return body(x.data<typename decltype(tag)::type>(), offsets);
  });
}

StatusOr<Kernel> sequence_erase(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  auto tokens = op.attr<std::vector<int64_t>>("tokens");
  std::sort(tokens.begin(), tokens.end());
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    return with_tokens(
        ctx, from, sequences_of, [&]<typename T>(const T* source, auto offsets) -> Status {
          const auto kept = [&](T token) {
            return !std::binary_search(tokens.begin(), tokens.end(), static_cast<int64_t>(token));
          };
          LodLevel level{0};
          for (size_t i = 0; i + 1 < offsets.size(); ++i)
            level.push_back(level.back() +
                            std::count_if(source + offsets[i], source + offsets[i + 1], kept));
          Tensor& to = ctx.out(out);
          MILLRACE_RETURN_IF_ERROR(resize_rows(to, from, level.back()));
          std::copy_if(source, source + from.numel(), to.data<T>(), kept);
          to.set_lod(with_last_level(from.lod(), std::move(level)));
          return Ok();
        });
  });
}

StatusOr<Kernel> sequence_enumerate(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const int64_t window = op.attr<int32_t>("win_size");
  const int64_t pad = op.attr<int32_t>("pad_value");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    return with_tokens(ctx, from, outer_sequences_of,
                       [&]<typename T>(const T* source, auto offsets) -> Status {
                         T* to = ctx.out(out).data<T>();
                         for (size_t i = 0; i + 1 < offsets.size(); ++i) {
                           for (int64_t r = offsets[i]; r < offsets[i + 1]; ++r) {
                             const int64_t found = std::min(window, offsets[i + 1] - r);
                             to = std::copy_n(source + r, found, to);
                             to = std::fill_n(to, window - found, static_cast<T>(pad));
                           }
                         }
                         return Ok();
                       });
  });
}

// Columns given by a sequence of ids, checked.
StatusOr<const int64_t*> columns_of(const KernelContext& ctx, const Tensor& ids, int64_t width) {
  return class_labels(ctx, ids, ids.numel(), width, 0, 0);
}

StatusOr<Kernel> sequence_scatter(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex ids = op.input("Ids");
  const ArgIndex updates = op.input("Updates");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor& added = ctx.in(updates);
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets,
                              sequences_of(ctx.in(ids), "Ids"));
    if (from.rank() == 0 || from.dim(0) != static_cast<int64_t>(offsets.size()) - 1)
      return ctx.error("X must have a row for each of the {} sequences of Ids, found {}",
                       offsets.size() - 1, describe(from));
    if (added.numel() != ctx.in(ids).numel() || added.dtype() != from.dtype())
      return ctx.error("Updates must have one summand per id, of the type of X, found {}",
                       describe(added));
    const int64_t width = row_width(from);
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const columns, columns_of(ctx, ctx.in(ids), width));
    Tensor& to = ctx.out(out);
    return dispatch<NumberTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (!to.shares_memory_with(from)) std::copy_n(from.data<T>(), from.numel(), to.data<T>());
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        T* const row = to.data<T>() + static_cast<int64_t>(i) * width;
        for (int64_t k = offsets[i]; k < offsets[i + 1]; ++k) row[columns[k]] += added.data<T>()[k];
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> sequence_scatter_grad(const KernelSetup& op) {
  const ArgIndex ids = op.input("Ids");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const ArgIndex dupdates = op.output("Updates@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed(ctx, ids, "Ids"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(*index, "Ids"));
    if (d->rank() == 0 || d->dim(0) != static_cast<int64_t>(offsets.size()) - 1)
      return ctx.error("Out@GRAD must have a row for each of the {} sequences of Ids, found {}",
                       offsets.size() - 1, describe(*d));
    const int64_t width = row_width(*d);
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const columns, columns_of(ctx, *index, width));
    Tensor* const to_updates = ctx.find_out(dupdates);
    if (to_updates != nullptr)
      MILLRACE_RETURN_IF_ERROR(to_updates->resize(d->dtype(), index->dims()));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_x, result_like(ctx, dx, *d));
    return dispatch<NumberTypes>(d->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (to_updates != nullptr) {
        for (size_t i = 0; i + 1 < offsets.size(); ++i) {
          const T* const row = d->data<T>() + static_cast<int64_t>(i) * width;
          for (int64_t k = offsets[i]; k < offsets[i + 1]; ++k)
            to_updates->data<T>()[k] = row[columns[k]];
        }
      }
      if (to_x != nullptr && !to_x->shares_memory_with(*d))
        std::copy_n(d->data<T>(), d->numel(), to_x->data<T>());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace tokens_kernels

void add_sequence_tokens(KernelRegistry& registry) {
  using namespace tokens_kernels;
  registry.add("sequence_erase", sequence_erase);
  registry.add("sequence_enumerate", sequence_enumerate);
  registry.add("sequence_scatter", sequence_scatter);
  registry.add("sequence_scatter_grad", sequence_scatter_grad);
}

}  // namespace millrace::kernels
