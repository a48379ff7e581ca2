#include "executor/control.h"

namespace millrace::executor {
namespace {

// The executor has put the fed value into the output before the run, and reads fetched vars after
// it, so that neither op copies.
StatusOr<Control> feed(const kernels::KernelSetup& setup, BlockRunner& /*runner*/) {
  const kernels::ArgIndex out = setup.output("Out");
  return Control([out](ControlContext& ctx) -> Status {
    if (ctx.args.out_value(out).initialized()) return Ok();
    return {StatusCode::kInvalidArgument, "the program feeds this var, but no value was given"};
  });
}

StatusOr<Control> fetch(const kernels::KernelSetup& /*setup*/, BlockRunner& /*runner*/) {
  return Control([](ControlContext& /*ctx*/) { return Ok(); });
}

}  // namespace

void add_feed_fetch(ControlRegistry& registry) {
  registry.add("feed", feed);
  registry.add("fetch", fetch);
}

}  // namespace millrace::executor
