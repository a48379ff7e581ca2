#include "executor/parallel/options.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>
#include <llvm/ADT/StringSet.h>

#include "executor/collective/rings.h"
#include "executor/parallel/parallel_executor.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/parallel/parallel.h"
#include "transpiler/roles.h"

namespace millrace::executor {
namespace {

Status refuse_unsupported(const BuildStrategy& build) {
  const std::pair<bool, const char*> fields[] = {
      {build.allow_cuda_graph_capture, "allow_cuda_graph_capture"},
      {build.build_cinn_pass, "build_cinn_pass"},
      {build.bkcl_comm_num != 1, "bkcl_comm_num"},
      {build.sequential_run, "sequential_run"},
  };
  for (const auto& [is_set, name] : fields) {
    if (is_set) return Unimplemented("build_strategy.{} has no meaning on CPU devices", name);
  }
  return Ok();
}

Status check_execution(const ExecutionStrategy& exec) {
  if (exec.num_threads < 0)
    return InvalidArgument("exec_strategy.num_threads must not be negative, found {}",
                           exec.num_threads);
  if (exec.num_iteration_per_drop_scope < 1) {
    return InvalidArgument(
        "exec_strategy.num_iteration_per_drop_scope must be at least 1, found {}",
        exec.num_iteration_per_drop_scope);
  }
  if (exec.num_iteration_per_run < 1) {
    return InvalidArgument("exec_strategy.num_iteration_per_run must be at least 1, found {}",
                           exec.num_iteration_per_run);
  }
  return Ok();
}

// Options that concern CPU devices only are refused.
Status check_gpus(const ParallelOptions& options) {
  if (options.gpus.empty()) {
    return options.use_cuda ? Unimplemented("use_cuda: no GPUs are given for the devices") : Ok();
  }
  if (options.gpus.size() != static_cast<size_t>(options.devices))
    return InvalidArgument("expected a GPU for each of {} devices, found {}", options.devices,
                           options.gpus.size());
  for (size_t d = 1; d < options.gpus.size(); ++d) {
    const auto* const same = std::find(options.gpus.data(), &options.gpus[d], options.gpus[d]);
    if (same != &options.gpus[d])
      return InvalidArgument("devices {} and {} are the same GPU", same - options.gpus.data(), d);
  }
  const int threads = options.exec_strategy.num_threads;
  if (threads > 0 && threads < options.devices) {
    return Unimplemented(
        "exec_strategy.num_threads {} with {} GPUs: devices that take turns must be CPU devices",
        threads, options.devices);
  }
  const std::pair<bool, const char*> refused[] = {
      {options.debug_memory, "debug_memory"},
      {options.build_strategy.async_mode, "build_strategy.async_mode"}};
  for (const auto& [is_set, name] : refused) {
    if (is_set) return Unimplemented("{} with GPUs: supported only for CPU devices", name);
  }
  return Ok();
}

Status check_hierarchy(const BuildStrategy& build) {
  if (!build.use_hierarchical_allreduce) return Ok();
  const int inter = build.hierarchical_allreduce_inter_nranks;
  if (build.num_trainers <= 1) {
    return InvalidArgument(
        "build_strategy.use_hierarchical_allreduce needs num_trainers above 1, found {}",
        build.num_trainers);
  }
  if (inter <= 1) {
    return InvalidArgument(
        "build_strategy.hierarchical_allreduce_inter_nranks must be above 1, found {}", inter);
  }
  if (build.num_trainers % inter != 0) {
    return InvalidArgument(
        "build_strategy.hierarchical_allreduce_inter_nranks {} does not divide num_trainers {}",
        inter, build.num_trainers);
  }
  return Ok();
}

Status check_trainers(const ParallelOptions& options) {
  const BuildStrategy& build = options.build_strategy;
  const auto endpoints = static_cast<int>(build.trainers_endpoints.size());
  if (build.num_trainers < 1)
    return InvalidArgument("num_trainers must be at least 1, found {}", build.num_trainers);
  if (endpoints > 0 && endpoints != build.num_trainers) {
    return InvalidArgument("num_trainers is {}, but there are {} trainers_endpoints",
                           build.num_trainers, endpoints);
  }
  if (build.trainer_id < 0 || build.trainer_id >= build.num_trainers) {
    return InvalidArgument("trainer_id must be in [0, {}), found {}", build.num_trainers,
                           build.trainer_id);
  }
  if (build.nccl_comm_num < 1)
    return InvalidArgument("build_strategy.nccl_comm_num must be at least 1, found {}",
                           build.nccl_comm_num);
  MILLRACE_RETURN_IF_ERROR(check_hierarchy(build));
  if (options.trainers_on_gpu != nullptr && options.gpus.size() != 1)
    return Unimplemented(
        "gradients of several processes that travel from GPU to GPU: expected one GPU in each, "
        "found {}",
        options.gpus.size());
  if (build.num_trainers == 1) return Ok();
  if (options.trainers == nullptr) {
    return InvalidArgument("num_trainers is {}, but no link to the other trainers is given",
                           build.num_trainers);
  }
  if (options.trainers->trainers() != build.num_trainers ||
      options.trainers->trainer_id() != build.trainer_id) {
    return InvalidArgument("this is trainer {} of {}, but the link is that of trainer {} of {}",
                           build.trainer_id, build.num_trainers, options.trainers->trainer_id(),
                           options.trainers->trainers());
  }
  return Ok();
}

Status check_loss(const ParallelOptions& options, const Program& program) {
  if (options.loss_name.empty()) {
    if (!transpiler::is_training_program(program)) return Ok();
    return Status(StatusCode::kInvalidArgument,
                  "the program has backward or optimizer ops, but no loss_name is given")
        .with_hint(
            "without it gradients would not be exchanged and the copies of parameters would "
            "diverge");
  }
  if (program.root().find_var(options.loss_name) == nullptr) {
    return InvalidArgument("loss_name: the program has no var '{}'", options.loss_name);
  }
  if (transpiler::is_training_program(program) && transpiler::loss_gradients(program).empty()) {
    return Status(StatusCode::kInvalidProgram,
                  "no op of role backward|loss (257) sets the initial gradient of the loss");
  }
  return Ok();
}

// Gradients are found by the roles of ops: without roles, devices would update their copies
// independently.
Status check_roles(const ParallelOptions& options, const Program& program) {
  if (options.devices * options.build_strategy.num_trainers == 1 ||
      transpiler::is_training_program(program))
    return Ok();
  for (const Op& op : program.root().ops()) {
    if (!transpiler::role::is_optimizer(op) || op.find_input("Grad") == nullptr) continue;
    return Status(
               StatusCode::kInvalidProgram,
               "the op updates a parameter, but no op of the program has a role (op_role), which "
               "determines the gradients to sum")
        .at(op.location());
  }
  return Ok();
}

// An op without the role of an update runs in each micro-batch, before the updates.
Status check_reads_of_updates(int micro_batches, const Program& program) {
  llvm::StringSet<> updated;
  for (const Op& op : program.root().ops()) {
    const int32_t bits = transpiler::role::of(op);
    if (bits == transpiler::role::kUnspecified) continue;
    const bool is_update = (bits & transpiler::role::kOptimize) != 0;
    for (const llvm::StringRef name : op.input_names()) {
      // averages run after the updates, whatever their role
      if (is_update || op.type() == "average_accumulates" || !updated.contains(name)) continue;
      return InvalidArgument(
                 "micro_batches {}: the op reads '{}' after its update, but has not the role of an "
                 "update (op_role 2), so it would run in each micro-batch, before it",
                 micro_batches, name.str())
          .at(op.location());
    }
    for (const llvm::StringRef name : op.output_names()) {
      const Var* const var = program.root().find_var(name);
      if (is_update && var != nullptr && var->persistable()) updated.insert(name);
    }
  }
  return Ok();
}

// Updates run once per step, after the last micro-batch.
Status check_micro_batches(const ParallelOptions& options, const Program& program) {
  const BuildStrategy& build = options.build_strategy;
  if (build.micro_batches < 1)
    return InvalidArgument("micro_batches must be at least 1, found {}", build.micro_batches);
  if (build.micro_batches == 1) return Ok();
  if (build.gradient_scale_strategy == GradientScale::kCustomized) {
    return InvalidArgument(
        "micro_batches {} and gradient_scale_strategy customized exclude each other",
        build.micro_batches);
  }
  bool has_updated = false;
  for (const Op& op : program.root().ops()) {
    const int32_t bits = transpiler::role::of(op);
    if (bits == transpiler::role::kUnspecified) continue;
    if (has_updated && (bits & transpiler::role::kBackward) != 0) {
      return InvalidArgument(
                 "micro_batches {}: the program computes gradients after an update from the "
                 "updated values, but updates run only once, after the last micro-batch",
                 build.micro_batches)
          .at(op.location());
    }
    has_updated |= (bits & transpiler::role::kOptimize) != 0;
  }
  return check_reads_of_updates(build.micro_batches, program);
}

// Ops by which the programs of devices exchange values; their numbers are valid in one plan only.
bool is_of_a_plan(const Op& op) {
  return op.type() == "exchange_begin" || op.type() == "exchange_end" ||
         op.type() == "shared_updates_end" || op.type() == "merge_gradient";
}

// The threads of several devices would make calls of one rank in any order.
Status check_ranks(const Program& program, int devices) {
  if (devices == 1) return Ok();
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      if (!exchanges_with_ranks(op.type())) continue;
      return Status(Unimplemented("the op exchanges values between processes, which have one "
                                  "device each; found {} devices",
                                  devices))
          .at(op.location());
    }
  }
  return Ok();
}

Status check_ops(const Program& program, int devices) {
  if (program.root().op_count() == 0)
    return {StatusCode::kInvalidArgument, "the program has no ops"};
  for (const Op& op : program.root().ops()) {
    if (is_of_a_plan(op)) {
      return Status(
                 StatusCode::kInvalidProgram,
                 fmt::format("'{}' is reserved for the programs of devices; the given program must "
                             "not have it",
                             op.type().str()))
          .at(op.location());
    }
    for (const auto& [type, attr] :
         {std::pair("inplace_abn", "use_sync_bn"), {"data_norm", "sync_stats"}}) {
      if (devices > 1 && op.type() == type && get_attr_or(op, attr, false))
        return Unimplemented("attribute '{}': statistics over all devices", attr).at(op.location());
    }
    if (op.type() == "dgc" || op.type() == "dgc_momentum") {
      return Status(StatusCode::kUnimplemented, "gradient compression (DGC)").at(op.location());
    }
  }
  return Ok();
}

int64_t bucket_bytes(const BuildStrategy& build) {
  constexpr int64_t kWithin = int64_t{1} << 20U;
  constexpr int64_t kBetween = int64_t{4} << 20U;
  return build.bucket_bytes.value_or(build.num_trainers > 1 ? kBetween : kWithin);
}

}  // namespace

Status check_options(const ParallelOptions& options, const Program& program) {
  if (options.devices < 1)
    return InvalidArgument("expected at least one device, found {}", options.devices);
  MILLRACE_RETURN_IF_ERROR(check_gpus(options));
  const BuildStrategy& build = options.build_strategy;
  MILLRACE_RETURN_IF_ERROR(refuse_unsupported(build));
  MILLRACE_RETURN_IF_ERROR(check_execution(options.exec_strategy));
  MILLRACE_RETURN_IF_ERROR(check_trainers(options));
  MILLRACE_RETURN_IF_ERROR(check_micro_batches(options, program));
  if (build.bucket_bytes.value_or(0) < 0)
    return InvalidArgument("bucket_bytes must not be negative, found {}", *build.bucket_bytes);
  if (options.share_vars_from != nullptr) {
    if (options.share_vars_from->runs() == 0) {
      return Status(StatusCode::kInvalidArgument, "share_vars_from: that executor has not run yet");
    }
    if (options.share_vars_from->device_count() != options.devices) {
      return InvalidArgument("share_vars_from: that executor has {} devices, this one {}",
                             options.share_vars_from->device_count(), options.devices);
    }
  }
  MILLRACE_RETURN_IF_ERROR(check_ranks(program, options.devices));
  MILLRACE_RETURN_IF_ERROR(check_ops(program, options.devices * build.num_trainers));
  MILLRACE_RETURN_IF_ERROR(check_roles(options, program));
  return check_loss(options, program);
}

std::vector<std::string> option_remarks(const ParallelOptions& options) {
  const BuildStrategy& build = options.build_strategy;
  std::vector<std::string> remarks;
  const ExecutionStrategy& exec = options.exec_strategy;
  const std::pair<bool, const char*> without_effect[] = {
      {build.fuse_all_optimizer_ops, "fuse_all_optimizer_ops"},
      {build.fuse_elewise_add_act_ops, "fuse_elewise_add_act_ops"},
      {build.fuse_bn_act_ops, "fuse_bn_act_ops"},
      {build.fuse_relu_depthwise_conv, "fuse_relu_depthwise_conv"},
      {build.fuse_gemm_epilogue, "fuse_gemm_epilogue"},
      {build.fused_attention, "fused_attention"},
      {build.fused_feedforward, "fused_feedforward"},
      {build.fuse_adamw, "fuse_adamw"},
      {build.enable_auto_fusion, "enable_auto_fusion"},
      {!build.mkldnn_enabled_op_types.empty(), "mkldnn_enabled_op_types"},
      {!build.fuse_bn_add_act_ops, "fuse_bn_add_act_ops"},
      {build.enable_addto, "enable_addto"},
      {build.enable_sequential_execution, "enable_sequential_execution"},
      {build.fix_op_run_order, "fix_op_run_order"},
      {!build.remove_unnecessary_lock, "remove_unnecessary_lock"},
      {build.cache_runtime_context, "cache_runtime_context"},
      {build.is_distribution, "is_distribution"},
      {exec.allow_op_delay, "allow_op_delay"},
      {exec.use_thread_barrier, "use_thread_barrier"},
      {!exec.use_experimental_executor, "use_experimental_executor"},
  };
  for (const auto& [is_set, name] : without_effect) {
    if (is_set) remarks.push_back(fmt::format("{}: changes nothing on CPU devices", name));
  }
  if (!build.use_hierarchical_allreduce && build.hierarchical_allreduce_inter_nranks != 0)
    remarks.emplace_back(
        "hierarchical_allreduce_inter_nranks: changes nothing without use_hierarchical_allreduce");
  if (build.num_trainers == 1 && build.nccl_comm_num != 1)
    remarks.emplace_back("nccl_comm_num: changes nothing in one process");
  if (build.reduce_strategy == ReduceStrategy::kReduce && options.devices == 1)
    remarks.emplace_back("reduce_strategy: all_reduce, because there is one device");
  if (options.share_vars_from != nullptr)
    remarks.emplace_back("scope: ignored, because share_vars_from is given");
  return remarks;
}

transpiler::Pipeline device_pipeline(const ParallelOptions& options, int device,
                                     const std::vector<std::string>& keep) {
  const BuildStrategy& build = options.build_strategy;
  transpiler::Pipeline pipeline;
  pipeline.steps.push_back({"remove-feed-fetch", {}});
  if (build.sync_batch_norm) pipeline.steps.push_back({"sync-batch-norm", {}});
  if (options.loss_name.empty()) return pipeline;
  const char* strategy = "all_reduce";
  if (build.reduce_strategy == ReduceStrategy::kReduce) strategy = "reduce";
  if (build.async_mode) strategy = "none";
  const char* scale = "average";
  if (build.gradient_scale_strategy == GradientScale::kOne) scale = "one";
  if (build.gradient_scale_strategy == GradientScale::kCustomized ||
      build.gradient_scale_strategy == GradientScale::kWeighted)
    scale = "fed";
  const auto text = [](auto value) { return fmt::format("{}", value); };
  // GPUs cannot read each other's gradients
  const bool shares =
      build.share_updates && options.share_vars_from == nullptr && options.gpus.empty();
  pipeline.steps.push_back(
      {"data-parallel",
       {{"devices", text(options.devices)},
        {"device", text(device)},
        {"trainers", text(build.num_trainers)},
        {"strategy", strategy},
        {"scale", scale},
        {"bucket-bytes", text(build.fuse_all_reduce_ops ? bucket_bytes(build) : 0)},
        {"wait-for-all", text(build.enable_backward_optimizer_op_deps)},
        {"fuse-broadcasts", text(build.fuse_broadcast_ops)},
        {"micro-batches", text(build.micro_batches)},
        {"rings", text(build.nccl_comm_num)},
        {"share-updates", text(shares)}}});
  if (!keep.empty()) pipeline.steps.back().options.push_back({"keep", keep});
  return pipeline;
}

}  // namespace millrace::executor
