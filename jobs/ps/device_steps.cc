#include "jobs/ps/device_steps.h"

#include <algorithm>
#include <set>
#include <utility>

#include "executor/feed_values.h"
#include "executor/parallel/merge_fetches.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "framework/tensor/layout.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;

// Bits of op_role that the transpiler sets for the ops that it adds: rpc and distribution.
constexpr int32_t kTransferRoles = 4 | 8;
constexpr int32_t kBackwardRole = 1;

// True for ops that communicate with servers, except lookups, which belong to the computation.
bool begins_transfer(const Op& op) {
  static constexpr const char* kTypes[] = {"send", "recv", "send_barrier", "fetch_barrier",
                                           "distributed_push_sparse"};
  if (op.type() == "distributed_lookup_table" || op.type() == "prefetch") return false;
  return llvm::is_contained(kTypes, op.type()) ||
         (get_attr_or<int32_t>(op, "op_role", 0) & kTransferRoles) != 0;
}

// For each op, by position: whether it belongs to the communication part.
StatusOr<std::vector<bool>> find_transfer(const Program& program) {
  std::vector<bool> is_transfer;
  std::set<std::string> moved;  // vars that the communication part writes
  for (const Op& op : program.root().ops()) {
    bool is = begins_transfer(op);
    for (const llvm::StringRef name : op.input_names()) {
      if (is || moved.count(name.str()) == 0) continue;
      // merges slices that were received
      if ((get_attr_or<int32_t>(op, "op_role", 0) & kBackwardRole) != 0 || op.type() == "sum")
        return Unimplemented(
                   "several devices: '{}' computes with '{}', which was received in the "
                   "same step",
                   op.type().str(), name.str())
            .at(op.location());
      is = true;
    }
    is_transfer.push_back(is);
    if (!is) continue;
    for (const llvm::StringRef name : op.output_names()) moved.insert(name.str());
  }
  return is_transfer;
}

void keep_ops(Program& program, const std::vector<bool>& is_transfer, bool transfer) {
  size_t at = 0;
  for (Op& op : llvm::make_early_inc_range(program.root().ops())) {
    if (is_transfer[at++] != transfer) program.root().erase(op);
  }
}

// Gradients that are reduced over the devices: the pairs of op_role_var.
std::set<std::string> gradients_of(const Program& program) {
  std::set<std::string> grads;
  for (const Op& op : program.root().ops()) {
    const auto pairs = get_attr_or<std::vector<std::string>>(op, "op_role_var", {});
    for (size_t i = 1; i < pairs.size(); i += 2) grads.insert(pairs[i]);
  }
  return grads;
}

}  // namespace

Status DeviceSteps::split(const Program& program) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<bool> is_transfer, find_transfer(program));
  compute_program_ = program.clone();
  transfer_program_ = program.clone();
  keep_ops(*compute_program_, is_transfer, /*transfer=*/false);
  keep_ops(*transfer_program_, is_transfer, /*transfer=*/true);
  const std::set<std::string> grads = gradients_of(program);
  std::set<std::string> known;
  const Block& compute = compute_program_->root();
  for (const Op& op : transfer_program_->root().ops()) {
    for (const llvm::StringRef name : op.input_names()) {
      const Var* const var = compute.find_var(name);
      if (!compute.has_writers(name) || !known.insert(name.str()).second) continue;
      if (var != nullptr && var->persistable()) continue;  // in the scope
      carried_.push_back({name.str(), grads.count(name.str()) == 0});
    }
  }
  for (const Var& var : compute.vars()) {
    if (var.persistable()) shared_.push_back(var.name().str());
  }
  return Ok();
}

StatusOr<std::unique_ptr<DeviceSteps>> DeviceSteps::create(
    const std::shared_ptr<const executor::Runtime>& runtime, const executor::Executor& executor,
    const Program& program, Scope& scope, const Options& options, int threads) {
  std::unique_ptr<DeviceSteps> steps(new DeviceSteps());
  steps->scope_ = &scope;
  MILLRACE_RETURN_IF_ERROR(steps->split(program));
  MILLRACE_ASSIGN_OR_RETURN(const executor::ParallelOptions settings,
                            options(*steps->compute_program_));
  MILLRACE_ASSIGN_OR_RETURN(
      steps->parallel_, executor::ParallelExecutor::create(runtime, *steps->compute_program_, scope,
                                                           settings, threads));
  for (const std::shared_ptr<gpu::Context>& gpu : settings.gpus)
    steps->places_.push_back(std::make_unique<executor::KeptPlaces>(gpu));
  MILLRACE_ASSIGN_OR_RETURN(steps->transfer_, executor.prepare(*steps->transfer_program_, scope));
  return steps;
}

Status DeviceSteps::run(const NamedValues& feeds, const std::vector<std::string>& fetches,
                        std::vector<Value>& values) {
  std::vector<std::string> wanted = fetches;
  for (const Carried& each : carried_) wanted.push_back(each.name);
  std::vector<std::vector<Value>> parts;
  MILLRACE_RETURN_IF_ERROR(
      parallel_->run_unmerged(executor::ParallelFeeds::split(feeds), wanted, parts));
  values.resize(fetches.size());
  for (size_t i = 0; i < fetches.size(); ++i) {
    std::vector<const Value*> of_devices;
    for (const Value& part : parts[i]) of_devices.push_back(&part);
    MILLRACE_RETURN_IF_ERROR(executor::merge_parts(fetches[i], of_devices, values[i]));
  }
  // ids of lookups are fed, and are sent together with their gradients
  NamedValues sent;
  for (const auto& [name, value] : feeds) {
    if (transfer_program_->root().has_readers(name))
      MILLRACE_RETURN_IF_ERROR(executor::copy_value(value, sent[name]));
  }
  MILLRACE_RETURN_IF_ERROR(carry(parts, fetches.size(), sent));
  std::vector<Value> none;
  MILLRACE_RETURN_IF_ERROR(bring_received());
  MILLRACE_RETURN_IF_ERROR(transfer_->run(sent, {}, none));
  return share(false);
}

void DeviceSteps::note(Value& value, const std::string& name, int device) {
  if (!places_.empty()) places_[static_cast<size_t>(device)]->note(value, name);
}

// Threads of the transport must not release device memory.
Status DeviceSteps::bring_received() {
  if (places_.empty()) return Ok();
  for (const std::string& name : shared_) {
    Value* const value = scope_->find(name);
    auto* const tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
    if (tensor == nullptr || !transfer_program_->root().has_writers(name)) continue;
    note(*value, name, 0);
    MILLRACE_RETURN_IF_ERROR(make_plain(*tensor));
  }
  return Ok();
}

Status DeviceSteps::carry(std::vector<std::vector<Value>>& parts, size_t begin,
                          NamedValues& to) const {
  for (size_t i = 0; i < carried_.size(); ++i) {
    std::vector<Value>& part = parts[begin + i];
    if (part.empty()) return NotFound("no device has '{}'", carried_[i].name);
    if (!carried_[i].is_joined) {
      to[carried_[i].name] = std::move(part.front());
      continue;
    }
    std::vector<const Value*> of_devices;
    of_devices.reserve(part.size());
    for (const Value& each : part) of_devices.push_back(&each);
    MILLRACE_RETURN_IF_ERROR(
        executor::merge_parts(carried_[i].name, of_devices, to[carried_[i].name]));
  }
  return Ok();
}

Status DeviceSteps::share(bool all) {
  for (const std::string& name : shared_) {
    const Value* const from = scope_->find(name);
    if (from == nullptr || !from->initialized()) continue;
    if (!all && !transfer_program_->root().has_writers(name)) continue;
    for (int device = 1; device < parallel_->device_count(); ++device) {
      Value* const to = parallel_->local_scope(device).find(name);
      if (to == nullptr || to == from) continue;
      note(*to, name, device);
      MILLRACE_RETURN_IF_ERROR(executor::copy_value(*from, *to));
    }
  }
  for (const auto& places : places_) MILLRACE_RETURN_IF_ERROR(places->settle());
  return Ok();
}

}  // namespace millrace::jobs
