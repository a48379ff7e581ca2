#include "executor/parallel/replica.h"

#include <algorithm>

#include <llvm/ADT/STLExtras.h>

#include "executor/compiled_ops/memory_guard.h"
#include "executor/feed_values.h"
#include "kernels/gpu/context.h"
#include "transpiler/parallel/owners.h"
#include "transpiler/roles.h"

namespace millrace::executor {
namespace replica_parts {
namespace {

namespace role = transpiler::role;

bool is_exchange(const Op& op) {
  return op.type() == "exchange_begin" || op.type() == "exchange_end" ||
         op.type() == "shared_updates_end";
}

// A counter of steps outside of a schedule, such as those of averages and of look-ahead. It counts
// a step once, not each micro-batch.
bool counts_steps(const Op& op) {
  const llvm::StringRef name = op.first_input("X");
  const Var* const var = op.block().find_var(name);
  return op.type() == "increment" && op.writes(name) && var != nullptr && var->persistable() &&
         op.block().writers_of(name).size() == 1;
}

// Device 0 has the random numbers of a plain executor.
uint64_t seed_of(uint64_t seed, int device) {
  return seed + static_cast<uint64_t>(device) * kSeedStep;
}

}  // namespace
}  // namespace replica_parts

Replica::Replica(std::shared_ptr<const Runtime> runtime, std::unique_ptr<Program> program,
                 Scope& scope, const ReplicaOptions& options)
    : runtime_(std::move(runtime)),
      program_(std::move(program)),
      scope_(scope),
      options_(options),
      device_(options.threads, replica_parts::seed_of(options.seed, options.device)) {}

StatusOr<std::unique_ptr<Replica>> Replica::create(std::shared_ptr<const Runtime> runtime,
                                                   std::unique_ptr<Program> program, Scope& scope,
                                                   const ReplicaOptions& options) {
  std::unique_ptr<Replica> replica(
      new Replica(std::move(runtime), std::move(program), scope, options));
  replica->device_.library<MemoryWatch>().on = options.debug_memory;
  if (options.gpu != nullptr) gpu::attach(replica->device_, options.gpu);
  MILLRACE_ASSIGN_OR_RETURN(
      replica->runner_,
      BlockRunner::compile(*replica->runtime_, replica->program_->root(), replica->device_));
  replica->find_phases();
  replica->bind();
  return replica;
}

void Replica::join(ExchangeGroup& group, int exchange, SharedUpdates& updates, DeviceLinks* links,
                   TrainerLink* ranks) {
  kernel_group_ = std::make_unique<KernelGroup>(group, options_.device, exchange);
  device_.library<kernels::GroupOfDevice>().group = kernel_group_.get();
  kernel_updates_ = std::make_unique<KernelUpdates>(updates, options_.device);
  device_.library<kernels::UpdateGroupOfDevice>().group = kernel_updates_.get();
  device_.library<DeviceInGroup>() = {
      &group, &updates, links, ranks, options_.device, 0, options_.micro_batches};
}

void Replica::find_phases() {
  using namespace replica_parts;
  const std::vector<CompiledOp>& compiled_ops = runner_->compiled_ops();
  const auto count = static_cast<unsigned>(compiled_ops.size());
  all_.resize(count, true);
  schedule_.resize(count);
  update_.resize(count);
  first_update_ = static_cast<int64_t>(count);
  for (unsigned i = 0; i < count; ++i) {
    const Op& op = *compiled_ops[i].op;
    const int32_t bits = role::of(op);
    const bool known = bits != role::kUnspecified;
    if ((known && (bits & role::kLrSched) != 0) || counts_steps(op)) {
      schedule_.set(i);
    } else if (is_exchange(op) || (known && (bits & role::kOptimize) != 0) ||
               transpiler::is_server_op(op) || op.type() == "average_accumulates") {
      update_.set(i);
      if (is_exchange(op) || first_update_ < i) continue;
      first_update_ = i;
      shares_first_update_ = op.has_attr("shared_update");
    }
  }
}

void Replica::bind() {
  locals_ = std::make_unique<Scope>(&scope_);
  runner_->bind(*locals_);
  if (options_.shares_memory) runner_->plan_memory(options_.in_place);
  // the update after the last micro-batch uses the rates of the first one
  for (const unsigned index : schedule_.set_bits()) {
    if (options_.micro_batches == 1) break;
    for (const llvm::StringRef name : runner_->compiled_ops()[index].op->output_names())
      runner_->keep(name);
  }
}

void Replica::drop_temporaries() {
  bind();
}

Value* Replica::find(const std::string& name) const {
  Value* const value = runner_->find(name);
  return value != nullptr ? value : locals_->find(name);
}

// A micro-batch must not see content of the one before, except rates and sums of gradients; a step
// must not see content of the step before.
void Replica::forget_last_run(const NamedValues& feeds, int micro_batch) {
  std::vector<const Value*> lasting;
  for (const auto& [name, value] : feeds) lasting.push_back(runner_->find(name));
  for (const CompiledOp& compiled : runner_->compiled_ops()) {
    if (micro_batch == 0) break;
    const auto index = static_cast<unsigned>(&compiled - runner_->compiled_ops().data());
    if (!schedule_.test(index) && compiled.op->type() != "merge_gradient") continue;
    for (const llvm::StringRef name : compiled.op->output_names())
      lasting.push_back(runner_->find(name));
  }
  runner_->forget_last_run(
      [&lasting](const Value& value) { return llvm::is_contained(lasting, &value); });
}

Status Replica::feed(const NamedValues& values) {
  for (const auto& [name, value] : values) {
    Value* const target = runner_->find(name);
    const Var* const var = program_->root().find_var(name);
    if (target == nullptr) {
      // no op of this device reads it, but it may be fetched
      if (var == nullptr) continue;
      MILLRACE_RETURN_IF_ERROR(
          copy_value(value, (var->persistable() ? scope_ : *locals_).local(name)));
      continue;
    }
    runner_->keep(name);
    MILLRACE_RETURN_IF_ERROR(check_feed(var, value));
    gpu::Memory* const memory = options_.gpu == nullptr ? nullptr : &options_.gpu->memory();
    MILLRACE_RETURN_IF_ERROR(copy_feed(name, value, memory, *target));
  }
  return Ok();
}

Status Replica::run(std::vector<DeviceFeed>& feeds, const std::vector<std::string>& fetches,
                    std::vector<Value>& results) {
  for (const std::string& name : fetches) runner_->keep(name);
  results.resize(feeds.size() * fetches.size());
  const int last = static_cast<int>(feeds.size()) - 1;
  auto& self = device_.library<DeviceInGroup>();
  self.micro_batches = static_cast<int>(feeds.size());
  for (int part = 0; part <= last; ++part) {
    self.micro_batch = part;
    forget_last_run(feeds[static_cast<size_t>(part)].values, part);
    MILLRACE_RETURN_IF_ERROR(feed(feeds[static_cast<size_t>(part)].values));
    llvm::BitVector skipped(all_.size());
    if (part > 0) skipped |= schedule_;
    if (part < last) skipped |= update_;
    if (options_.dry_run) skipped = all_;
    MILLRACE_RETURN_IF_ERROR(skipped.none() ? runner_->run() : runner_->run_without(skipped));
    if (options_.gpu != nullptr) MILLRACE_RETURN_IF_ERROR(options_.gpu->device().wait());
    for (size_t i = 0; i < fetches.size(); ++i) {
      const Value* const value = find(fetches[i]);
      Value& result = results[static_cast<size_t>(part) * fetches.size() + i];
      if (value == nullptr || !value->initialized()) {
        result.clear();
      } else {
        MILLRACE_RETURN_IF_ERROR(copy_value(*value, result));
      }
    }
  }
  return Ok();
}

}  // namespace millrace::executor
