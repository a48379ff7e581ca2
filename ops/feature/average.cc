#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

struct Pair {
  const char* in;
  const char* out;
  const char* doc;
};

constexpr Pair kPairs[] = {
    {"in_sum_1", "out_sum_1", "sum of the newest values"},
    {"in_sum_2", "out_sum_2", "sum of older values of the window"},
    {"in_sum_3", "out_sum_3", "sum of the previous window"},
    {"in_num_accumulates", "out_num_accumulates", "values in the window, one int64"},
    {"in_old_num_accumulates", "out_old_num_accumulates",
     "values in the previous window, one int64"},
    {"in_num_updates", "out_num_updates", "steps so far, one int64"},
};

Status infer_averages(InferContext& ctx) {
  for (const char* const slot : {"in_sum_1", "in_sum_2", "in_sum_3"})
    MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "param", slot));
  for (const Pair& pair : kPairs) ctx.copy(pair.in, pair.out);
  return Ok();
}

}  // namespace

void add_feature_average(OpRegistry& registry) {
  OpDef def("average_accumulates");
  def.doc("sums of a param over a sliding window of steps").input("param", "the param");
  for (const Pair& pair : kPairs) def.input(pair.in, pair.doc).output(pair.out, "the same, after");
  def.attr("average_window", 0.0F, "share of the steps so far that the window spans")
      .range(0)
      .attr("max_average_window", std::numeric_limits<int64_t>::max(), "longest window, in steps")
      .attr("min_average_window", int64_t{10000}, "shortest window, in steps")
      .infer(infer_averages);
  for (const Pair& pair : kPairs) def.inplace(pair.in, pair.out);
  registry.add(def);
}

}  // namespace millrace::ops
