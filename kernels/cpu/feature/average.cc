#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace average {
namespace {

// Number of values that one sum may accumulate before it is added to the next sum. This keeps small
// values from being lost in a large sum.
constexpr int64_t kMostInOneSum = 16384;

struct Counters {
  int64_t in_window = 0;
  int64_t in_old_window = 0;
  int64_t updates = 0;
};

struct AverageSlots {
  ArgIndex param;
  ArgIndex sums[3];
  ArgIndex sums_out[3];
  ArgIndex counts[3];
  ArgIndex counts_out[3];
};

AverageSlots average_slots(const KernelSetup& op) {
  return {op.input("param"),
          {op.input("in_sum_1"), op.input("in_sum_2"), op.input("in_sum_3")},
          {op.output("out_sum_1"), op.output("out_sum_2"), op.output("out_sum_3")},
          {op.input("in_num_accumulates"), op.input("in_old_num_accumulates"),
           op.input("in_num_updates")},
          {op.output("out_num_accumulates"), op.output("out_old_num_accumulates"),
           op.output("out_num_updates")}};
}

// One pass: adds the parameter to the newest sum, then moves the sums on if they are full.
template <typename T>
void accumulate_sums(const Tensor& param, Tensor* const* sums, bool spill, bool close) {
  const T* const p = param.data<T>();
  T* const newest = sums[0]->data<T>();
  T* const window = sums[1]->data<T>();
  T* const old = sums[2]->data<T>();
  const int64_t count = param.numel();
  if (!spill && !close) {
    for (int64_t i = 0; i < count; ++i) newest[i] += p[i];
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const T sum = newest[i] + p[i];
    newest[i] = 0;
    if (close) {
      old[i] = sum + window[i];
      window[i] = 0;
    } else {
      window[i] += sum;
    }
  }
}

StatusOr<int64_t> read_count(const KernelContext& ctx, const Tensor& tensor) {
  if (tensor.dtype() != DType::kInt64 || tensor.numel() != 1)
    return ctx.error("counters must be one i64, found {}", describe(tensor));
  return *tensor.data<int64_t>();
}

StatusOr<Kernel> average_accumulates(const KernelSetup& op) {
  const AverageSlots slots = average_slots(op);
  const double share = op.attr<float>("average_window");
  const auto longest = op.attr<int64_t>("max_average_window");
  const auto shortest = op.attr<int64_t>("min_average_window");
  if (shortest > longest)
    return op.error("attribute 'min_average_window' is {}, expected at most max_average_window, {}",
                    shortest, longest);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& param = ctx.in(slots.param);
    Tensor* sums[3];
    Counters counters;
    int64_t* const fields[3] = {&counters.in_window, &counters.in_old_window, &counters.updates};
    for (int k = 0; k < 3; ++k) {
      MILLRACE_ASSIGN_OR_RETURN(*fields[k], read_count(ctx, ctx.in(slots.counts[k])));
      const Tensor& from = ctx.in(slots.sums[k]);
      sums[k] = &ctx.out(slots.sums_out[k]);
      if (!sums[k]->shares_memory_with(from)) MILLRACE_RETURN_IF_ERROR(sums[k]->copy_from(from));
      if (from.dtype() != param.dtype() || from.numel() != param.numel()) {
        return ctx.error("sums must match param {}, found {}", describe(param), describe(from));
      }
    }
    ++counters.updates;
    ++counters.in_window;
    const double wanted = static_cast<double>(counters.updates) * share;
    const bool close = counters.in_window >= shortest &&
                       static_cast<double>(counters.in_window) >=
                           std::min<double>(static_cast<double>(longest), wanted);
    const bool spill = counters.updates % kMostInOneSum == 0;
    MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(param.dtype(), [&](auto tag) -> Status {
      accumulate_sums<typename decltype(tag)::type>(param, sums, spill, close);
      return Ok();
    }));
    if (close) {
      counters.in_old_window = counters.in_window;
      counters.in_window = 0;
    }
    for (int k = 0; k < 3; ++k) *ctx.out(slots.counts_out[k]).data<int64_t>() = *fields[k];
    return Ok();
  });
}

}  // namespace
}  // namespace average

void add_feature_average(KernelRegistry& registry) {
  registry.add("average_accumulates", average::average_accumulates);
}

}  // namespace millrace::kernels
