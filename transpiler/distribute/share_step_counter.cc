#include "framework/base/errors.h"
#include "framework/names.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Initial value of the shared counter: the sum of the trainers' counters starts one step below
// zero, as each trainer's own counter starts at 1 (quirk Q12: str_value keeps its old number).
void reset_initializer(Block& startup, llvm::StringRef counter, int64_t trainers) {
  for (Op* const op : startup.writers_of(counter)) {
    if (op->type() == "fill_constant") op->set_float("value", static_cast<float>(-trainers));
  }
}

void append_initializer(Block& startup, const std::string& name, const VarSpec& spec) {
  startup.declare(name, spec);
  std::vector<int64_t> shape(spec.dims.begin(), spec.dims.end());
  Op& op = startup.append_op("fill_constant");
  op.set_output("Out", llvm::StringRef(name))
      .set_attr("shape", AttrValue::of_longs(std::move(shape)))
      .set_int("dtype", static_cast<int32_t>(spec.dtype))
      .set_float("value", 1.0F)
      .set_string("str_value", "1.0")
      .set_int("place_type", -1);
  finish(op, role::kForward);
}

// Replaces one increment by the sum of all trainers' counters.
Status share_counter(Block& block, Block& startup, DistributionJob& job, Op& increment) {
  const std::string counter = increment.first_output("Out").str();
  const Var* const var = block.find_var(counter);
  if (var == nullptr) {
    return InvalidProgram("step counter '{}' is not declared in block 0", counter)
        .at(increment.location());
  }
  const VarSpec spec = var->spec();
  reset_initializer(startup, counter, job.trainers);
  std::vector<std::string> counters;
  for (int64_t trainer = 0; trainer < job.trainers; ++trainer) {
    counters.push_back(names::trainer(counter, trainer));
    block.declare(counters.back(), spec);
    append_initializer(startup, counters.back(), spec);
    if (trainer == job.arguments.trainer_id) job.step_counter = counters.back();
  }
  Op& sum = block.insert_before(&increment, "sum");
  sum.set_input("X", counters)
      .set_output("Out", llvm::StringRef(counter))
      .set_bool("use_mkldnn", false);
  finish(sum, role::kLrSched);
  block.erase(increment);
  return Ok();
}

}  // namespace

Status share_step_counter(Program& main, PassContext& context, DistributionJob& job) {
  if (job.sync()) return Ok();
  Block& block = main.root();
  for (Op& op : llvm::make_early_inc_range(block.ops())) {
    if (role::is_lr_op(op) && op.type() == "increment") {
      MILLRACE_RETURN_IF_ERROR(share_counter(block, context.startup->root(), job, op));
    }
  }
  if (job.step_counter.empty()) return Ok();
  if (job.distributed_mode() == 0) {
    return InvalidArgument(
        "sync_mode is false, but {} makes servers work in steps (distributed_mode 0), and then "
        "they cannot count the steps of the schedule ('{}') for each trainer",
        job.config.completely_not_async ? "completely_not_async" : "config_sync_mode true",
        job.step_counter);
  }
  const std::string control = job.controls.create(block);
  Op& send = block.append_op("send");
  send.set_input("X", llvm::StringRef(job.step_counter))
      .set_output("Out", llvm::StringRef(control))
      .set_strings("epmap", job.endpoints)
      .set_attr("sections", AttrValue::of_longs({}))
      .set_strings("send_varnames", job.config.runtime_split_send_recv
                                        ? std::vector<std::string>{job.step_counter}
                                        : std::vector<std::string>{})
      .set_bool("merge_add", true)
      .set_bool("use_send_handler", false);
  finish(send, role::kRpc).set_strings("op_role_var", {job.step_counter, job.step_counter});
  job.barrier_inputs.push_back(control);
  return Ok();
}

}  // namespace millrace::transpiler
