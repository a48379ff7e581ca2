#include "kernels/gpu/ops/row_picks.h"

#include "kernels/cpu/sequence/sequence.h"
#include "kernels/gpu/ops/words.h"

namespace millrace::gpu {

Status RowPicks::run(llvm::ArrayRef<int64_t> rows, const std::byte* from, int64_t row_bytes,
                     std::byte* to, const RowFill& fill) {
  const auto count = static_cast<int64_t>(rows.size());
  if (count * row_bytes == 0) return Ok();
  int64_t word =
      common_factor(16, {row_bytes, address_of(from), address_of(to), address_of(fill.rows)});
  if (fill.element > 0) word = fill.element;
  if (count * (row_bytes / word) >= int64_t{1} << 31)
    return refuse("{} rows of {} bytes", count, row_bytes);
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const numbers, held_.get(memory_, rows));
  return with_word(word, [&](auto tag) {
    using Word = decltype(tag);
    return each(memory_.device(),
                PickRows<Word>{reinterpret_cast<const Word*>(from),
                               reinterpret_cast<const Word*>(fill.rows), numbers,
                               reinterpret_cast<Word*>(to), Divider(row_bytes / word),
                               fill.element > 0 ? 0 : 1},
                count * (row_bytes / word));
  });
}

Status RowPicks::add(llvm::ArrayRef<int64_t> targets, const float* from, int64_t rows,
                     int64_t width, float* to) {
  if (rows * width == 0) return Ok();
  if (rows * width >= int64_t{1} << 31) return refuse("{} rows of {} elements", rows, width);
  std::vector<int64_t> numbers(static_cast<size_t>(rows) + 1);
  for (const int64_t target : targets) {
    if (target >= 0) ++numbers[static_cast<size_t>(target) + 1];
  }
  for (size_t i = 1; i < numbers.size(); ++i) numbers[i] += numbers[i - 1];
  std::vector<int64_t> next(numbers.begin(), numbers.end());
  const size_t starts = numbers.size();
  numbers.resize(starts + static_cast<size_t>(numbers.back()));
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    int64_t& place = next[static_cast<size_t>(targets[i])];
    numbers[starts + static_cast<size_t>(place++)] = static_cast<int64_t>(i);
  }
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const there, held_.get(memory_, numbers));
  return each(memory_.device(), AddRows{from, there, there + starts, to, Divider(width)},
              rows * width);
}

StatusOr<MovedGradient> MovedGradientArgs::find(const KernelContext& ctx) const {
  MovedGradient g{};
  MILLRACE_ASSIGN_OR_RETURN(g.x, needed_here(ctx, x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(g.dout, needed_here(ctx, dout, "Out@GRAD"));
  MILLRACE_ASSIGN_OR_RETURN(g.to, output_like(ctx, dx, *g.x));
  if (g.dout->dtype() != g.x->dtype() || (g.to != nullptr && is_same_memory(*g.to, *g.dout)))
    return refuse("Out@GRAD {}", describe(*g.dout));
  return g;
}

StatusOr<llvm::ArrayRef<int64_t>> innermost_here(const Tensor& tensor) {
  StatusOr<llvm::ArrayRef<int64_t>> found = kernels::sequences_of(tensor, "X");
  if (!found.ok()) return refuse("{}", found.status().message());
  return found;
}

StatusOr<llvm::ArrayRef<int64_t>> outermost_here(const Tensor& tensor) {
  StatusOr<llvm::ArrayRef<int64_t>> found = kernels::outer_sequences_of(tensor, "X");
  if (!found.ok()) return refuse("{}", found.status().message());
  return found;
}

}  // namespace millrace::gpu
