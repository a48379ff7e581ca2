#include "framework/base/errors.h"
#include "framework/names.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

int64_t rows_of(const PlacedSlice& placed) {
  return placed.grad_dims.empty() ? 1 : placed.grad_dims[0];
}

// Splits the gradient after its last writer; returns the op after which to insert the send.
Op& insert_split(Block& block, Op& writer, const ParamGrad& pair) {
  std::vector<std::string> slices;
  for (const PlacedSlice& placed : pair.slices) slices.push_back(placed.grad);
  const bool sparse = pair.grad_kind == VarKind::kSelectedRows;
  Op& split = block.insert_after(writer, sparse ? "split_selected_rows" : "split_byref");
  split.set_input("X", llvm::StringRef(pair.grad)).set_output("Out", slices);
  if (sparse) {
    std::vector<int64_t> sections;
    for (const PlacedSlice& placed : pair.slices) sections.push_back(rows_of(placed));
    split.set_attr("height_sections", AttrValue::of_longs(std::move(sections)));
  } else {
    std::vector<int32_t> sections;
    for (const PlacedSlice& placed : pair.slices)
      sections.push_back(static_cast<int32_t>(rows_of(placed)));
    split.set_attr("sections", AttrValue::of_ints(std::move(sections)));
  }
  return finish(split, role::kDist);
}

void insert_send(Block& block, Op& where, const DistributionJob& job, const ParamGrad& pair) {
  const bool at_run_time = job.config.runtime_split_send_recv;
  std::vector<std::string> inputs;
  std::vector<std::string> endpoints;
  std::vector<std::string> sent_names;
  std::vector<int64_t> sections;
  for (const PlacedSlice& placed : pair.slices) {
    endpoints.push_back(job.endpoints[static_cast<size_t>(placed.endpoint)]);
    if (!at_run_time) {
      inputs.push_back(placed.grad);
      continue;
    }
    sections.push_back(rows_of(placed));
    const bool merged = job.config.completely_not_async && job.trainers > 1;
    sent_names.push_back(placed.grad);
    if (merged) sent_names.back() = names::trainer(placed.grad, job.arguments.trainer_id);
  }
  const std::string whole = pair.is_sliced() ? pair.grad : pair.grad_on_trainer;
  if (at_run_time) inputs = {whole};
  Op& send = block.insert_after(where, "send");
  send.set_input("X", inputs)
      .set_output("Out", llvm::StringRef(pair.send_control))
      .set_strings("epmap", std::move(endpoints))
      .set_attr("sections", AttrValue::of_longs(std::move(sections)))
      .set_strings("send_varnames", std::move(sent_names));
  finish(send, role::kRpc).set_strings("op_role_var", {pair.param, whole});
}

}  // namespace

Status insert_sends(Program& main, PassContext& context, DistributionJob& job) {
  (void)context;
  Block& block = main.root();
  for (const uint32_t p : job.send_order) {
    ParamGrad& pair = job.pairs[p];
    const std::string& whole = pair.is_sliced() ? pair.grad : pair.grad_on_trainer;
    Op* where = block.last_writer(whole);
    if (where == nullptr) {
      return InvalidProgram(
          "gradient '{}' of param '{}' is written by no op, so there is nothing to send", whole,
          pair.param);
    }
    if (pair.is_sliced() && !job.config.runtime_split_send_recv)
      where = &insert_split(block, *where, pair);
    pair.send_control = job.controls.create(block);
    insert_send(block, *where, job, pair);
    job.barrier_inputs.push_back(pair.send_control);
  }
  job.barrier_control = job.controls.create(block);
  if (job.table.exists()) {
    job.table_control = job.controls.create(block);
    job.barrier_inputs.push_back(job.table_control);
  }
  return Ok();
}

}  // namespace millrace::transpiler
