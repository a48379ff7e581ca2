#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Ops with which the devices of one process exchange values. The pass data-parallel inserts them
// into the program of each device. An exchange has separate begin and end ops, so that a device can
// compute while it waits for the others.
namespace millrace::ops {
namespace exchange_ops {
namespace {

OpDef exchange(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "values of this device, all of one element type", Arity::kMany)
      .required_attr<std::string>("kind", "how the values are combined")
      .one_of({"all_reduce", "reduce", "broadcast", "gather_rows"})
      .required_attr<int32_t>("bucket", "number of the exchange in the program")
      .range(0)
      .attr("root", -1, "device that receives (reduce) or sends (broadcast) the values; -1: all")
      .range(-1)
      .attr("ring_id", 0, "communicator between processes")
      .range(0)
      .side_effects();
  return def;
}

Status infer_in_place(InferContext& ctx) {
  copy_each(ctx, "X", "Out");
  return Ok();
}

Status infer_merge(InferContext& ctx) {
  ctx.copy("X", "Out");
  ctx.copy("X", "MergedOut");
  return Ok();
}

}  // namespace
}  // namespace exchange_ops

void add_collective_exchange(OpRegistry& registry) {
  using namespace exchange_ops;
  registry.add(exchange("exchange_begin", "Offers values to the other devices of the process."));
  registry.add(exchange("exchange_end",
                        "Waits until every device has the result of an exchange: the sum over the "
                        "devices, the values of one device, or the rows of all devices.")
                   .output("Out", "X, in place", Arity::kMany)
                   .inplace("X", "Out")
                   .infer(infer_in_place));
  registry.add(
      OpDef("shared_updates_end")
          .doc(
              "Waits until the updates that the devices share are done. After that, parameters may "
              "be read and the memory of gradients may be reused.")
          .input("X", "gradients of those updates", Arity::kMany)
          .side_effects());
  registry.add(OpDef("merge_gradient")
                   .doc("Adds up the gradients of the micro-batches of a step; in the last one "
                        "Out is the sum.")
                   .input("X", "gradient of one micro-batch")
                   .input("Merged", "sum over the earlier micro-batches", Arity::kOptional)
                   .output("Out", "X, in place")
                   .output("MergedOut", "Merged, in place")
                   .inplace("X", "Out")
                   .inplace("Merged", "MergedOut")
                   .infer(infer_merge)
                   .side_effects());
}

}  // namespace millrace::ops
