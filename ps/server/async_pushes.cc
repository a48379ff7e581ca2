#include "ps/server/async_pushes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "ps/values.h"

namespace millrace::ps {
namespace {

// Var with the number of the trainer whose gradient a block compensates.
constexpr const char* kTrainerId = "@TRAINER_ID@";

// The gradient of which a message has a part: programs of the original name these grad@k@PIECE.
llvm::StringRef whole_name(llvm::StringRef name) {
  if (!name.consume_back("@PIECE")) return name;
  return name.rsplit('@').first;
}

// local = param - lambda * (param - copy). The block subtracts local from param, which yields
// lambda times the difference.
Status blend(const Tensor& param, const Tensor& copy, double lambda, Tensor& local) {
  if (param.dtype() != DType::kFloat32 || copy.numel() != param.numel())
    return Unimplemented("delay compensation with a factor other than 1 is not implemented for {}",
                         describe(param));
  MILLRACE_RETURN_IF_ERROR(local.resize(param.dtype(), param.dims()));
  const auto factor = static_cast<float>(lambda);
  for (int64_t i = 0; i < param.numel(); ++i) {
    const float p = param.data<float>()[i];
    local.data<float>()[i] = p - factor * (p - copy.data<float>()[i]);
  }
  return Ok();
}

// Calls fn(op, sum) for every sum of the block; the sum is null if it is no single i64.
template <typename Fn>
Status each_sum(const ServerBlock& block, Fn fn) {
  for (const Op& op : block.block().ops()) {
    if (op.type() != "sum") continue;
    const Value* const value = block.find(op.first_output("Out"));
    const auto* sum = value == nullptr ? nullptr : value->get_if<Tensor>();
    const bool is_number =
        sum != nullptr && sum->initialized() && sum->dtype() == DType::kInt64 && sum->numel() == 1;
    MILLRACE_RETURN_IF_ERROR(fn(op, is_number ? sum : nullptr));
  }
  return Ok();
}

}  // namespace

StatusOr<std::unique_ptr<AsyncPushes>> AsyncPushes::create(ServerCore& core) {
  std::unique_ptr<AsyncPushes> pushes(new AsyncPushes(core));
  if (core.plan.mode == ServerMode::kGeo) MILLRACE_RETURN_IF_ERROR(pushes->add_tables());
  if (core.plan.lr_block >= 0) {
    ServerBlock& block = *core.block(core.plan.lr_block);
    const BlockLock lock = block.lock();
    MILLRACE_RETURN_IF_ERROR(pushes->reset_counters(block));
    MILLRACE_RETURN_IF_ERROR(
        pushes->compute_rates(block).with_note("for the learning rate at the start"));
  }
  return pushes;
}

Status AsyncPushes::add_tables() {
  for (const auto& [grad, param] : core_.plan.sparse_params) {
    MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_.find_var(param));
    const llvm::ArrayRef<int64_t> dims = var->var->dims();
    if (dims.empty() || dims[0] < 0)
      return InvalidProgram("table '{}' is declared without a number of rows", param);
    auto& table = tables_[param];
    if (table == nullptr) table = std::make_unique<ChangedRows>(core_.plan.trainers, dims[0]);
    tables_of_[grad] = table.get();
  }
  return Ok();
}

// Resets the trainers' counters, whatever values the startup program gave them: the first gradients
// get the learning rate of step 0, or of the step after the last one of a loaded job. The loaded
// sum is the number of that step, of all trainers together (-1: none).
Status AsyncPushes::reset_counters(const ServerBlock& block) const {
  return each_sum(block, [&](const Op& op, const Tensor* sum) -> Status {
    const auto counters = op.input("X");
    const bool is_loaded = core_.options.continues && sum != nullptr;
    const int64_t counted = is_loaded ? std::max<int64_t>(0, *sum->data<int64_t>() + 1) : 0;
    for (size_t t = 0; t < counters.size(); ++t) {
      Value* const value = block.find(counters[t]);
      if (counters[t] != names::trainer(op.first_output("Out"), static_cast<int64_t>(t)) ||
          value == nullptr)
        continue;
      MILLRACE_RETURN_IF_ERROR(fill_zeros(value->as<Tensor>(), DType::kInt64, {1}));
      if (t == 0) *value->as<Tensor>().data<int64_t>() = counted;
    }
    return Ok();
  });
}

// The rates are those of the next step. The sum is left at the number of the last step, as one
// process and a synchronous job leave it, because it is saved and loaded.
Status AsyncPushes::compute_rates(ServerBlock& block) const {
  MILLRACE_RETURN_IF_ERROR(block.run());
  return each_sum(block, [&](const Op& op, const Tensor* sum) -> Status {
    const auto counters = op.input("X");
    if (sum == nullptr || counters.empty() ||
        counters[0] != names::trainer(op.first_output("Out"), 0))
      return Ok();
    --*block.find(op.first_output("Out"))->get_if<Tensor>()->data<int64_t>();
    return Ok();
  });
}

Status AsyncPushes::push(int trainer, const RequestItem& item) {
  const std::string name = whole_name(item.name).str();
  const auto found = core_.plan.grad_blocks.find(name);
  if (found == core_.plan.grad_blocks.end()) {
    if (core_.plan.federated) return replace_param(trainer, item);
    return NotFound("this server ({}) has no optimize block for '{}'", core_.plan.endpoint, name);
  }
  MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_.find_var(name));
  MILLRACE_RETURN_IF_ERROR(ServerCore::check(item, *var));
  ServerBlock& block = *core_.block(found->second);
  const BlockLock lock = block.lock();
  if (ChangedRows* const table = tables_of_.lookup(name)) {
    if (const auto* const rows = item.value->get_if<SelectedRows>()) {
      table->add(rows->rows);
    } else {
      table->add_all();
    }
  }
  MILLRACE_RETURN_IF_ERROR(ServerCore::take(item, *var->value));
  return core_.plan.dc_asgd ? run_compensated(block, trainer) : block.run();
}

Status AsyncPushes::run_compensated(ServerBlock& block, int trainer) {
  Value* const id = block.find(kTrainerId);
  if (id == nullptr) return block.run();
  auto& number = id->as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(number.resize(DType::kInt64, {1}));
  *number.data<int64_t>() = trainer;
  const Op& choice = *block.block().ops().begin();
  if (core_.options.dc_lambda == 1 || choice.type() != "ref_by_trainer_id") return block.run();
  const Op* const difference = block.block().next(choice);
  Value* const copy = block.find(choice.input("X")[static_cast<size_t>(trainer)]);
  Value* const param = block.find(difference->first_input("X"));
  Value* const local = block.find(choice.first_output("Out"));
  MILLRACE_RETURN_IF_ERROR(blend(*param->get_if<Tensor>(), *copy->get_if<Tensor>(),
                                 core_.options.dc_lambda, local->as<Tensor>()));
  return block.run_after(1);
}

// Asynchronous federated training: the trainer's copy replaces the parameter.
Status AsyncPushes::replace_param(int trainer, const RequestItem& item) {
  for (const std::string& param : core_.plan.inputs) {
    if (names::federated(param, trainer) != item.name) continue;
    MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_.find_var(param));
    return ServerCore::store(item, *var);
  }
  return NotFound("this server ({}) does not accept '{}' from trainer {}", core_.plan.endpoint,
                  item.name, trainer);
}

Status AsyncPushes::set(const RequestItem& item) {
  MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_.find_var(item.name));
  return ServerCore::store(item, *var);
}

Status AsyncPushes::count(const std::string& counter, int64_t steps) {
  if (core_.plan.lr_block < 0) {
    return InvalidArgument("'{}' is a step counter, but this server ({}) computes no learning rate",
                           counter, core_.plan.endpoint);
  }
  MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_.find_var(counter));
  ServerBlock& block = *core_.block(core_.plan.lr_block);
  const BlockLock lock = block.lock();
  auto* const tensor = var->value->get_if<Tensor>();
  if (tensor == nullptr || tensor->dtype() != DType::kInt64 || tensor->numel() != 1)
    return InvalidArgument("counter '{}' must be a single i64, found {}", counter,
                           describe(*var->value));
  *tensor->data<int64_t>() += steps;
  return compute_rates(block);
}

// One lock covers both the value that the trainer reads and the record of it, so that they agree.
Status AsyncPushes::get(int trainer, const std::string& name, ReplySink& reply) {
  const auto table = tables_.find(name);
  const auto backup =
      core_.plan.dc_asgd ? core_.vars().find(names::dc_backup(name, trainer)) : core_.vars().end();
  if (table == tables_.end() && backup == core_.vars().end()) return core_.put_var(name, reply);
  MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_.find_var(name));
  const std::unique_lock lock(*var->mutex);
  MILLRACE_RETURN_IF_ERROR(ServerCore::put(name, *var, reply));
  if (table != tables_.end()) table->second->forget(trainer);
  if (backup == core_.vars().end()) return Ok();
  return copy_value_into(*var->value, *backup->getValue().value);
}

Status AsyncPushes::get_changed(int trainer, const std::string& name, bool repeat,
                                ReplySink& reply) {
  const auto table = tables_.find(name);
  MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_.find_var(name));
  const std::shared_lock lock(*var->mutex);
  const auto* const tensor = var->value->get_if<Tensor>();
  if (table == tables_.end() || tensor == nullptr || !tensor->initialized())
    return InvalidArgument("'{}' is not a sparse table of this server ({})", name,
                           core_.plan.endpoint);
  Value changed;
  auto& rows = changed.as<SelectedRows>();
  rows.rows = table->second->take(trainer, repeat);
  rows.height = tensor->dim(0);
  Dims dims(tensor->dims().begin(), tensor->dims().end());
  const int64_t bytes = dims[0] == 0 ? 0 : tensor->bytes() / dims[0];
  dims[0] = static_cast<int64_t>(rows.rows.size());
  MILLRACE_RETURN_IF_ERROR(rows.value.resize(tensor->dtype(), dims));
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    std::memcpy(rows.value.raw() + static_cast<int64_t>(i) * bytes,
                tensor->raw() + rows.rows[i] * bytes, static_cast<size_t>(bytes));
  }
  return reply.put(name, changed);
}

}  // namespace millrace::ps
