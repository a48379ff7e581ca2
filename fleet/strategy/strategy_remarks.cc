#include "fleet/strategy/strategy_remarks.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

namespace millrace::fleet {
namespace {

// As in the original, whose communicators read only the environment.
void remark_async(const AsyncConfigs& found, std::vector<std::string>& remarks) {
  const AsyncConfigs fresh;
  const std::pair<bool, const char*> in_environment[] = {
      {found.max_merge_var_num != fresh.max_merge_var_num, "max_merge_var_num"},
      {found.send_queue_size != fresh.send_queue_size, "send_queue_size"},
      {found.independent_recv_thread != fresh.independent_recv_thread, "independent_recv_thread"},
      {found.min_send_grad_num_before_recv != fresh.min_send_grad_num_before_recv,
       "min_send_grad_num_before_recv"},
      {found.thread_pool_size != fresh.thread_pool_size, "thread_pool_size"},
      {found.send_wait_times != fresh.send_wait_times, "send_wait_times"}};
  for (const auto& [is_set, name] : in_environment) {
    if (!is_set) continue;
    remarks.push_back(fmt::format(
        "a_sync_configs.{0} has no effect: it is set by FLAGS_communicator_{0} of the environment",
        name));
  }
  if (found.runtime_split_send_recv)
    remarks.emplace_back(
        "a_sync_configs.runtime_split_send_recv has no effect: tables are always split at run "
        "time");
  if (!llvm::StringRef(found.heter_worker_device_guard).equals_insensitive("cpu"))
    remarks.emplace_back(
        "a_sync_configs.heter_worker_device_guard has no effect without heter workers");
  if (found.lr_decay_steps != fresh.lr_decay_steps)
    remarks.emplace_back(
        "a_sync_configs.lr_decay_steps has no effect: no schedule runs on the servers");
}

}  // namespace

std::vector<std::string> strategy_remarks(const DistributedStrategy& strategy,
                                          const transpiler::TablePlan& plan) {
  std::vector<std::string> remarks;
  remark_async(strategy.a_sync_configs(), remarks);
  const FsClientConfigs& store = strategy.fs_client_param();
  if (!store.uri.empty() || !store.user.empty() || !store.passwd.empty() ||
      !store.hadoop_bin.empty())
    remarks.emplace_back(
        "fs_client_param has no effect except in ps_desc.txt: servers save below "
        "--allow-dir");
  const TrainerDescConfigs& trainer = strategy.trainer_desc_configs();
  if (!trainer.dump_fields_path.empty() && trainer.dump_fields.empty() &&
      trainer.dump_param.empty())
    remarks.emplace_back(
        "trainer_desc_configs.dump_fields_path has no effect without dump_fields and dump_param");
  for (const std::string& table : strategy.tables_with_settings()) {
    const bool is_there = std::any_of(plan.sparse.begin(), plan.sparse.end(),
                                      [&](const auto& one) { return one.var.param == table; });
    if (!is_there)
      remarks.push_back(fmt::format(
          "fleet_desc_configs['{}'] has no effect: the program has no sparse table of that name",
          table));
  }
  return remarks;
}

}  // namespace millrace::fleet
