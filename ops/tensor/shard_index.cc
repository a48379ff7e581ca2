#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace shard_index {
namespace {

Status infer(InferContext& ctx) {
  const auto shards = ctx.attr<int64_t>("nshards");
  const auto shard = ctx.attr<int64_t>("shard_id");
  if (shard >= shards) {
    return ctx.error("attribute 'shard_id' ({}) must be less than 'nshards' ({})", shard, shards);
  }
  return infer_unary(ctx);
}

}  // namespace
}  // namespace shard_index

void add_tensor_shard_index(OpRegistry& registry) {
  registry.add(
      OpDef("shard_index")
          .doc("the index within this shard, or ignore_value for an index of another shard")
          .input("X", "integers in [0, index_num)")
          .output("Out", "shape, dtype and LoD of X")
          .required_attr<int32_t>("index_num", "number of indices in all")
          .range(1)
          .required_attr<int32_t>("nshards", "number of shards; each has ceil(index_num / nshards)")
          .range(1)
          .required_attr<int32_t>("shard_id", "this shard, from 0")
          .range(0)
          .attr("ignore_value", -1, "result for an index of another shard")
          .infer(shard_index::infer)
          .inplace("X", "Out"));
}

}  // namespace millrace::ops
