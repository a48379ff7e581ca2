#include <unordered_map>
#include <vector>

#include "kernels/cpu/int_list.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct PairSlots {
  ArgIndex score, label, query, weight;
  ArgIndex before[3];
  ArgIndex out[3];  // positive, negative, neutral
};

template <typename T>
struct RankedItem {
  T score;
  T label;
  T weight;
};

template <typename T>
void add_pair(const RankedItem<T>& a, const RankedItem<T>& b, T sums[3]) {
  if (a.label == b.label) return;
  const T weight = (a.weight + b.weight) / 2;
  // equal scores count twice, as in the original
  if (a.score == b.score) sums[2] += weight;
  const bool alike = (a.score - b.score) * (a.label - b.label) > 0;
  sums[alike ? 0 : 1] += weight;
}

template <typename T>
Status count_pairs(const KernelContext& ctx, const PairSlots& slots, const Ints& queries,
                   int64_t column) {
  const Tensor& score = ctx.in(slots.score);
  const Tensor& label = ctx.in(slots.label);
  const Tensor* const weight = ctx.find_in(slots.weight);
  T sums[3] = {};
  for (size_t k = 0; k < 3; ++k) {
    const Tensor* const start = ctx.find_in(slots.before[k]);
    if (start == nullptr) continue;
    if (start->dtype() != score.dtype() || start->numel() != 1)
      return ctx.error("the sums to start from must be one element of the type of Score, found {}",
                       describe(*start));
    sums[k] = *start->data<T>();
  }
  std::unordered_map<int64_t, std::vector<RankedItem<T>>> items;
  for (size_t i = 0; i < queries.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const RankedItem<T> item{score.data<T>()[at * score.dim(1) + column], label.data<T>()[i],
                             weight == nullptr ? T(1) : weight->data<T>()[i]};
    auto& others = items[queries[i]];
    for (const auto& other : others) add_pair(item, other, sums);
    others.push_back(item);
  }
  for (size_t k = 0; k < 3; ++k) {
    if (!slots.out[k]) continue;
    MILLRACE_RETURN_IF_ERROR(size_output(ctx.out(slots.out[k]), score.dtype(), {1}));
    *ctx.out(slots.out[k]).data<T>() = sums[k];
  }
  return Ok();
}

StatusOr<Kernel> positive_negative_pair(const KernelSetup& op) {
  const PairSlots slots{
      op.input("Score"),
      op.input("Label"),
      op.input("QueryID"),
      op.input("Weight"),
      {op.input("AccumulatePositivePair"), op.input("AccumulateNegativePair"),
       op.input("AccumulateNeutralPair")},
      {op.output("PositivePair"), op.output("NegativePair"), op.output("NeutralPair")}};
  const auto column_attr = op.attr<int64_t>("column");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& score = ctx.in(slots.score);
    const Tensor& label = ctx.in(slots.label);
    const Tensor* const weight = ctx.find_in(slots.weight);
    Ints queries;
    MILLRACE_RETURN_IF_ERROR(append_ints(ctx.in(slots.query), "QueryID", queries));
    const auto count = static_cast<int64_t>(queries.size());
    if (score.rank() != 2 || score.dim(0) != count || label.numel() != count ||
        label.dtype() != score.dtype() ||
        (weight != nullptr && (weight->numel() != count || weight->dtype() != score.dtype())))
      return ctx.error(
          "Score {} and Label {}, and Weight if any, must have a row for each of the "
          "{} query ids",
          describe(score), describe(label), count);
    const int64_t column = column_attr < 0 ? column_attr + score.dim(1) : column_attr;
    if (column < 0 || column >= score.dim(1))
      return ctx.error("attribute 'column' is {}, expected a column of Score {}", column_attr,
                       describe(score));
    return dispatch<FloatTypes>(score.dtype(), [&](auto tag) {
      return count_pairs<typename decltype(tag)::type>(ctx, slots, queries, column);
    });
  });
}

}  // namespace

void add_metric_positive_negative_pair(KernelRegistry& registry) {
  registry.add("positive_negative_pair", positive_negative_pair);
}

}  // namespace millrace::kernels
