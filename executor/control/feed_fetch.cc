#include <string>
#include <vector>

#include "executor/compiled_ops/control.h"

namespace millrace::executor {
namespace {

// The executor stores the fed value in the output before the run and reads fetched vars after it,
// so neither op copies.
StatusOr<Control> feed(const kernels::KernelSetup& setup, BlockRunner& /*runner*/) {
  const kernels::ArgIndex out = setup.output("Out");
  Location place;
  place.slot = "Out";
  place.slot_index = 0;
  place.var = setup.op().first_output("Out").str();
  return Control([out, place](ControlContext& ctx) -> Status {
    if (ctx.args.out_value(out).initialized()) return Ok();
    return Status(StatusCode::kInvalidArgument,
                  "the program feeds this var, but no value was given")
        .at(place);
  });
}

StatusOr<Control> fetch(const kernels::KernelSetup& setup, BlockRunner& /*runner*/) {
  const kernels::ArgIndex in = setup.input("X");
  Location place;
  place.slot = "X";
  place.slot_index = 0;
  place.var = setup.op().first_input("X").str();
  return Control([in, place](ControlContext& ctx) -> Status {
    if (!in) return Ok();
    const Value& value = ctx.args.in_value(in);
    const auto* const tensor = value.get_if<Tensor>();
    if (value.initialized() && (tensor == nullptr || tensor->initialized())) return Ok();
    return Status(StatusCode::kExecution, "the program fetches this var, but no op has written it")
        .at(place);
  });
}

// Frees the vars; later ops treat them as never written.
StatusOr<Control> delete_var(const kernels::KernelSetup& setup, BlockRunner& /*runner*/) {
  std::vector<std::string> names;
  for (const Slot& slot : setup.op().inputs()) {
    for (const Arg& arg : slot.args) names.push_back(setup.op().name_of(arg.name).str());
  }
  return Control([names](ControlContext& ctx) -> Status {
    for (const std::string& name : names) {
      if (Value* const value = ctx.scope.find(name)) value->clear();
    }
    return Ok();
  });
}

}  // namespace

void add_feed_fetch(ControlRegistry& registry) {
  registry.add("feed", feed);
  registry.add("fetch", fetch);
  registry.add("fetch_v2", fetch);
  registry.add("delete_var", delete_var);
}

}  // namespace millrace::executor
