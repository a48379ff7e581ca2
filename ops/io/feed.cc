#include "ops/registry.h"

// Ops for the inputs and results of a run; spec/model_format.md section 3.
namespace millrace::ops {
namespace {

constexpr uint32_t kFeedData = kTensorLike | kTensorArray;
// An edge optimizer declares the fetch list as a tensor array.
constexpr uint32_t kFetchList = kFeedFetch | kTensorArray;

}  // namespace

void add_io_feed(OpRegistry& registry) {
  registry.add(OpDef("feed")
                   .doc("Out = element col of the feed list")
                   .input("X", "the feed list", Arity::kOne, kFeedFetch)
                   .output("Out", "the fed var", Arity::kOne, kAnyKind)
                   .required_attr<int32_t>("col", "position in the feed list")
                   .range(0)
                   .side_effects());
  registry.add(OpDef("fetch")
                   .doc("element col of the fetch list = X")
                   .input("X", "the var to fetch", Arity::kOne, kFeedData)
                   .output("Out", "the fetch list", Arity::kOne, kFetchList)
                   .required_attr<int32_t>("col", "position in the fetch list")
                   .range(0)
                   .side_effects());
  registry.add(OpDef("fetch_v2")
                   .doc("element col of the fetch list = X")
                   .input("X", "the var to fetch", Arity::kOne, kFeedData)
                   .output("Out", "the fetch list", Arity::kOne, kFetchList)
                   .required_attr<int32_t>("col", "position in the fetch list")
                   .range(0)
                   .attr("deepcopy", true, "false: the result may share memory with X")
                   .side_effects());
}

}  // namespace millrace::ops
