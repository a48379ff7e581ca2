#include "executor/parallel/strategy_fields.h"

#include <variant>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/StringSwitch.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::executor {
namespace {

template <typename Strategy, typename... Types>
struct FieldOf {
  std::string_view name;
  std::variant<Types Strategy::*...> member;
};

using BuildField =
    FieldOf<BuildStrategy, bool, int, std::optional<int64_t>, std::optional<bool>, std::string,
            std::vector<std::string>, std::set<std::string>, ReduceStrategy, GradientScale>;
using ExecutionField = FieldOf<ExecutionStrategy, bool, int>;

using B = BuildStrategy;
constexpr BuildField kBuildFields[] = {
    {"reduce_strategy", &B::reduce_strategy},
    {"gradient_scale_strategy", &B::gradient_scale_strategy},
    {"num_trainers", &B::num_trainers},
    {"trainer_id", &B::trainer_id},
    {"trainers_endpoints", &B::trainers_endpoints},
    {"fuse_all_reduce_ops", &B::fuse_all_reduce_ops},
    {"fuse_broadcast_ops", &B::fuse_broadcast_ops},
    {"fuse_all_optimizer_ops", &B::fuse_all_optimizer_ops},
    {"fuse_elewise_add_act_ops", &B::fuse_elewise_add_act_ops},
    {"fuse_bn_act_ops", &B::fuse_bn_act_ops},
    {"fuse_bn_add_act_ops", &B::fuse_bn_add_act_ops},
    {"fuse_relu_depthwise_conv", &B::fuse_relu_depthwise_conv},
    {"fuse_gemm_epilogue", &B::fuse_gemm_epilogue},
    {"fused_attention", &B::fused_attention},
    {"fused_feedforward", &B::fused_feedforward},
    {"fuse_adamw", &B::fuse_adamw},
    {"enable_auto_fusion", &B::enable_auto_fusion},
    {"sync_batch_norm", &B::sync_batch_norm},
    {"memory_optimize", &B::memory_optimize},
    {"enable_inplace", &B::enable_inplace},
    {"enable_addto", &B::enable_addto},
    {"enable_sequential_execution", &B::enable_sequential_execution},
    {"fix_op_run_order", &B::fix_op_run_order},
    {"enable_backward_optimizer_op_deps", &B::enable_backward_optimizer_op_deps},
    {"remove_unnecessary_lock", &B::remove_unnecessary_lock},
    {"cache_runtime_context", &B::cache_runtime_context},
    {"debug_graphviz_path", &B::debug_graphviz_path},
    {"mkldnn_enabled_op_types", &B::mkldnn_enabled_op_types},
    {"is_distribution", &B::is_distribution},
    {"async_mode", &B::async_mode},
    {"nccl_comm_num", &B::nccl_comm_num},
    {"use_hierarchical_allreduce", &B::use_hierarchical_allreduce},
    {"hierarchical_allreduce_inter_nranks", &B::hierarchical_allreduce_inter_nranks},
    {"allow_cuda_graph_capture", &B::allow_cuda_graph_capture},
    {"build_cinn_pass", &B::build_cinn_pass},
    {"bkcl_comm_num", &B::bkcl_comm_num},
    {"sequential_run", &B::sequential_run},
    {"bucket_bytes", &B::bucket_bytes},
    {"micro_batches", &B::micro_batches},
    {"share_updates", &B::share_updates},
};

using E = ExecutionStrategy;
constexpr ExecutionField kExecutionFields[] = {
    {"num_threads", &E::num_threads},
    {"num_iteration_per_drop_scope", &E::num_iteration_per_drop_scope},
    {"num_iteration_per_run", &E::num_iteration_per_run},
    {"allow_op_delay", &E::allow_op_delay},
    {"use_thread_barrier", &E::use_thread_barrier},
    {"use_experimental_executor", &E::use_experimental_executor},
    {"dry_run", &E::dry_run},
};

bool read(llvm::StringRef text, bool& to) {
  const int word = llvm::StringSwitch<int>(text)
                       .CasesLower("true", "1", 1)
                       .CasesLower("false", "0", 0)
                       .Default(-1);
  if (word >= 0) to = word == 1;
  return word >= 0;
}

bool read(llvm::StringRef text, int& to) {
  return !text.getAsInteger(10, to);
}

bool read(llvm::StringRef text, int64_t& to) {
  return !text.getAsInteger(10, to);
}

template <typename T>
bool read(llvm::StringRef text, std::optional<T>& to) {
  T value{};
  if (text.equals_insensitive("none")) {
    to.reset();
    return true;
  }
  if (!read(text, value)) return false;
  to = value;
  return true;
}

bool read(llvm::StringRef text, std::string& to) {
  to = text.str();
  return true;
}

template <typename Words>
requires std::is_same_v<typename Words::value_type, std::string>
bool read(llvm::StringRef text, Words& to) {
  llvm::SmallVector<llvm::StringRef, 8> words;
  text.split(words, ',', -1, /*KeepEmpty=*/false);
  to = Words();
  for (const llvm::StringRef word : words) to.insert(to.end(), word.str());
  return true;
}

bool read(llvm::StringRef text, ReduceStrategy& to) {
  const auto found = llvm::StringSwitch<std::optional<ReduceStrategy>>(text)
                         .Cases("all_reduce", "AllReduce", "0", ReduceStrategy::kAllReduce)
                         .Cases("reduce", "Reduce", "1", ReduceStrategy::kReduce)
                         .Default(std::nullopt);
  if (found) to = *found;
  return found.has_value();
}

bool read(llvm::StringRef text, GradientScale& to) {
  const auto found =
      llvm::StringSwitch<std::optional<GradientScale>>(text)
          .Cases("average", "CoeffNumDevice", "coeff_num_device", GradientScale::kCoeffNumDevice)
          .Cases("one", "One", GradientScale::kOne)
          .Cases("customized", "Customized", GradientScale::kCustomized)
          .Case("weighted", GradientScale::kWeighted)
          .Default(std::nullopt);
  if (found) to = *found;
  return found.has_value();
}

template <typename Fields>
std::vector<std::string_view> names_of(const Fields& fields) {
  std::vector<std::string_view> names;
  for (const auto& field : fields) names.push_back(field.name);
  return names;
}

template <typename Strategy, typename Fields>
Status set_in(const char* kind, const Fields& fields, Strategy& strategy, std::string_view name,
              std::string_view value) {
  const auto* const found = llvm::find_if(fields, [&](const auto& f) { return f.name == name; });
  if (found == std::end(fields)) {
    Status status = InvalidArgument("{} has no field '{}'", kind, name);
    const std::string near = nearest_name(name, names_of(fields));
    return near.empty() ? status : std::move(status).with_hint("did you mean '" + near + "'?");
  }
  const llvm::StringRef text(value);
  if (std::visit([&](const auto member) { return read(text, strategy.*member); }, found->member))
    return Ok();
  return InvalidArgument("{}.{}: cannot be '{}'", kind, name, value);
}

}  // namespace

Status set_field(BuildStrategy& strategy, std::string_view name, std::string_view value) {
  return set_in("build_strategy", kBuildFields, strategy, name, value);
}

Status set_field(ExecutionStrategy& strategy, std::string_view name, std::string_view value) {
  return set_in("exec_strategy", kExecutionFields, strategy, name, value);
}

std::vector<std::string_view> build_strategy_fields() {
  return names_of(kBuildFields);
}

std::vector<std::string_view> execution_strategy_fields() {
  return names_of(kExecutionFields);
}

}  // namespace millrace::executor
