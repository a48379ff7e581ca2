#include <algorithm>
#include <memory>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// rank_attention: each row is multiplied by the blocks of RankParam for its rank and the ranks of
// its partners. All rows that use the same block are multiplied together.
namespace millrace::kernels {
namespace rank_attention_kernels {
namespace {

struct RankSizes {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t columns = 0;
  int64_t ranks = 0;
};

// The rows to multiply: row, index k of its partner, row of the partner.
struct RankPair {
  int64_t row;
  int64_t place;
  int64_t partner;
};

StatusOr<RankSizes> sizes_of_ranks(const KernelContext& ctx, const Tensor& x, const Tensor& places,
                                   const Tensor& param, int64_t ranks) {
  if (x.rank() != 2 || param.rank() != 2 || param.dtype() != x.dtype() ||
      param.dim(0) != ranks * ranks * x.dim(1))
    return ctx.error("RankParam must have {}^2 rows for each column of X {}, found {}", ranks,
                     describe(x), describe(param));
  if (places.dtype() != DType::kInt32 || places.rank() != 2 || places.dim(0) != x.dim(0) ||
      places.dim(1) != 1 + 2 * ranks)
    return ctx.error("RankOffset must be i32 [{}, {}], found {}", x.dim(0), 1 + 2 * ranks,
                     describe(places));
  return RankSizes{x.dim(0), x.dim(1), param.dim(1), ranks};
}

// The pairs that use each block of RankParam. Errors: a rank above the maximum, a row that X lacks.
StatusOr<std::vector<std::vector<RankPair>>> pairs_of_blocks(const KernelContext& ctx,
                                                             const Tensor& places,
                                                             const RankSizes& s) {
  std::vector<std::vector<RankPair>> blocks(static_cast<size_t>(s.ranks * s.ranks));
  for (int64_t row = 0; row < s.rows; ++row) {
    const int32_t* const entry = places.data<int32_t>() + row * (1 + 2 * s.ranks);
    if (entry[0] > s.ranks)
      return ctx.error("RankOffset has rank {} for row {}, expected at most {}", entry[0], row,
                       s.ranks);
    for (int64_t k = 0; k < s.ranks && entry[0] > 0; ++k) {
      const int32_t rank = entry[1 + 2 * k];
      const int32_t partner = entry[2 + 2 * k];
      if (rank <= 0) continue;
      if (rank > s.ranks || partner < 0 || partner >= s.rows)
        return ctx.error(
            "RankOffset has partner {} of row {} with rank {} in row {}, expected at most {} and a "
            "row in [0, {})",
            k, row, rank, partner, s.ranks, s.rows);
      blocks[static_cast<size_t>((entry[0] - 1) * s.ranks + rank - 1)].push_back({row, k, partner});
    }
  }
  return blocks;
}

// The row of `from` for each pair.
template <typename T, typename RowOf>
void collect_rows(const std::vector<RankPair>& pairs, const T* from, int64_t width, RowOf&& row_of,
                  T* to) {
  for (const RankPair& pair : pairs) to = std::copy_n(from + row_of(pair) * width, width, to);
}

enum class RankPiece : size_t { kSeen, kMade };

struct RankState {
  Workspace work;
  Gemm gemm;
};

// Calls multiply(pairs, rows, rows of x of the partners [rows, width], scratch [rows, columns],
// first element of the block in RankParam) for each block that pairs use.
template <typename T, typename Multiply>
Status each_used_block(const RankSizes& s, const std::vector<std::vector<RankPair>>& blocks,
                       const T* x, RankState& state, Multiply&& multiply) {
  for (size_t block = 0; block < blocks.size(); ++block) {
    const std::vector<RankPair>& pairs = blocks[block];
    const auto count = static_cast<int64_t>(pairs.size());
    if (count == 0) continue;
    MILLRACE_ASSIGN_OR_RETURN(
        T* const seen, state.work.take<T>(static_cast<size_t>(RankPiece::kSeen), count * s.width));
    MILLRACE_ASSIGN_OR_RETURN(
        T* const made,
        state.work.take<T>(static_cast<size_t>(RankPiece::kMade), count * s.columns));
    collect_rows(
        pairs, x, s.width, [](const RankPair& p) { return p.partner; }, seen);
    MILLRACE_RETURN_IF_ERROR(multiply(pairs, count, static_cast<const T*>(seen), made,
                                      static_cast<int64_t>(block) * s.width * s.columns));
  }
  return Ok();
}

template <typename T>
Status run(const KernelContext& ctx, const RankSizes& s,
           const std::vector<std::vector<RankPair>>& blocks, const T* x, const T* param, T* out,
           RankState& state) {
  std::fill_n(out, s.rows * s.columns, T(0));
  const auto multiply = [&](const std::vector<RankPair>& pairs, int64_t count, const T* seen,
                            T* made, int64_t first) -> Status {
    MILLRACE_RETURN_IF_ERROR(state.gemm(ctx.device(),
                                        {.rows = count, .columns = s.columns, .inner = s.width},
                                        seen, param + first, made));
    for (size_t i = 0; i < pairs.size(); ++i) {
      T* const row = out + pairs[i].row * s.columns;
      const T* const from = made + static_cast<int64_t>(i) * s.columns;
      for (int64_t c = 0; c < s.columns; ++c) row[c] += from[c];
    }
    return Ok();
  };
  return each_used_block(s, blocks, x, state, multiply);
}

// Outputs that the original keeps for the gradient. millrace does not need them, but programs may
// read them.
template <typename T>
void write_helpers(const RankSizes& s, const std::vector<std::vector<RankPair>>& blocks,
                   const Tensor& places, const T* x, Tensor* help, Tensor* own) {
  if (help != nullptr) {
    std::fill_n(help->data<T>(), help->numel(), T(0));
    for (const std::vector<RankPair>& pairs : blocks) {
      for (const RankPair& p : pairs)
        std::copy_n(x + p.partner * s.width, s.width,
                    help->data<T>() + (p.row * s.ranks + p.place) * s.width);
    }
  }
  if (own == nullptr) return;
  std::fill_n(own->data<T>(), own->numel(), T(-1));
  for (int64_t row = 0; row < s.rows; ++row)
    own->data<T>()[row] = static_cast<T>(places.data<int32_t>()[row * (1 + 2 * s.ranks)]);
}

StatusOr<Kernel> rank_attention(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex offset = op.input("RankOffset");
  const ArgIndex param = op.input("RankParam");
  const ArgIndex help = op.output("InputHelp");
  const ArgIndex out = op.output("Out");
  const ArgIndex own = op.output("InsRank");
  const int64_t ranks = op.attr<int32_t>("MaxRank");
  auto state = std::make_shared<RankState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor& places = ctx.in(offset);
    MILLRACE_ASSIGN_OR_RETURN(const RankSizes s,
                              sizes_of_ranks(ctx, from, places, ctx.in(param), ranks));
    MILLRACE_ASSIGN_OR_RETURN(const auto blocks, pairs_of_blocks(ctx, places, s));
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      write_helpers(s, blocks, places, from.data<T>(), ctx.find_out(help), ctx.find_out(own));
      return run(ctx, s, blocks, from.data<T>(), ctx.in(param).data<T>(), ctx.out(out).data<T>(),
                 *state);
    });
  });
}

template <typename T>
Status run_rank_attention_grad(const KernelContext& ctx, const RankSizes& s,
                               const std::vector<std::vector<RankPair>>& blocks, const T* x,
                               const T* dout, T* dparam, RankState& state) {
  std::fill_n(dparam, s.ranks * s.ranks * s.width * s.columns, T(0));
  const auto multiply = [&](const std::vector<RankPair>& pairs, int64_t count, const T* seen,
                            T* made, int64_t first) {
    collect_rows(
        pairs, dout, s.columns, [](const RankPair& p) { return p.row; }, made);
    return state.gemm(ctx.device(),
                      {.rows = s.width, .columns = s.columns, .inner = count, .a_transposed = true},
                      seen, static_cast<const T*>(made), dparam + first);
  };
  return each_used_block(s, blocks, x, state, multiply);
}

StatusOr<Kernel> rank_attention_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex offset = op.input("RankOffset");
  const ArgIndex param = op.input("RankParam");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dparam = op.output("RankParam@GRAD");
  const int64_t ranks = op.attr<int32_t>("MaxRank");
  auto state = std::make_shared<RankState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const places, needed(ctx, offset, "RankOffset"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const weights, needed(ctx, param, "RankParam"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const RankSizes s,
                              sizes_of_ranks(ctx, *from, *places, *weights, ranks));
    if (d->numel() != s.rows * s.columns || d->dtype() != from->dtype())
      return ctx.error("Out@GRAD must be [{}, {}], found {}", s.rows, s.columns, describe(*d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dparam, *weights));
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const auto blocks, pairs_of_blocks(ctx, *places, s));
    return dispatch<FloatTypes>(from->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return run_rank_attention_grad(ctx, s, blocks, from->data<T>(), d->data<T>(), to->data<T>(),
                                     *state);
    });
  });
}

}  // namespace
}  // namespace rank_attention_kernels

void add_feature_rank_attention(KernelRegistry& registry) {
  using namespace rank_attention_kernels;
  registry.add("rank_attention", rank_attention);
  registry.add("rank_attention_grad", rank_attention_grad);
}

}  // namespace millrace::kernels
