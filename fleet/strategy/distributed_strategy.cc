#include "fleet/strategy/distributed_strategy.h"

#include <iterator>
#include <string_view>

#include <llvm/ADT/StringRef.h>

#include "fleet/strategy/table_settings.h"
#include "framework/base/errors.h"

namespace millrace::fleet {
namespace {

constexpr std::string_view kAsyncKeys[] = {
    "k_steps",        "max_merge_var_num",         "send_queue_size",
    "lr_decay_steps", "independent_recv_thread",   "min_send_grad_num_before_recv",
    "use_ps_gpu",     "thread_pool_size",          "send_wait_times",
    "launch_barrier", "heter_worker_device_guard", "runtime_split_send_recv"};

bool is_device(llvm::StringRef name) {
  return name.equals_insensitive("cpu") || name.equals_insensitive("gpu") ||
         name.equals_insensitive("xpu");
}

}  // namespace

void DistributedStrategy::set_a_sync(bool on) {
  a_sync_ = on;
  async_.k_steps = 0;
}

Status DistributedStrategy::set_a_sync_configs(const ConfigDict& configs) {
  const std::string what = "a_sync_configs";
  MILLRACE_RETURN_IF_ERROR(
      check_keys(configs, {std::begin(kAsyncKeys), std::end(kAsyncKeys)}, what));
  ConfigReader read(configs, what);
  AsyncConfigs next = async_;
  next.k_steps = read.integer("k_steps", next.k_steps);
  next.max_merge_var_num = read.integer("max_merge_var_num", next.max_merge_var_num);
  next.send_queue_size = read.integer("send_queue_size", next.send_queue_size);
  next.independent_recv_thread =
      read.boolean("independent_recv_thread", next.independent_recv_thread);
  next.min_send_grad_num_before_recv =
      read.integer("min_send_grad_num_before_recv", next.min_send_grad_num_before_recv);
  next.thread_pool_size = read.integer("thread_pool_size", next.thread_pool_size);
  next.send_wait_times = read.integer("send_wait_times", next.send_wait_times);
  next.runtime_split_send_recv =
      read.boolean("runtime_split_send_recv", next.runtime_split_send_recv);
  next.launch_barrier = read.boolean("launch_barrier", next.launch_barrier);
  next.heter_worker_device_guard =
      read.text("heter_worker_device_guard", next.heter_worker_device_guard);
  next.lr_decay_steps = read.integer("lr_decay_steps", next.lr_decay_steps);
  next.use_ps_gpu = read.integer("use_ps_gpu", next.use_ps_gpu);
  MILLRACE_RETURN_IF_ERROR(read.status());
  if (!is_device(next.heter_worker_device_guard))
    return InvalidArgument("{}.heter_worker_device_guard: expected cpu, gpu or xpu, found '{}'",
                           what, next.heter_worker_device_guard);
  async_ = std::move(next);
  return Ok();
}

Status DistributedStrategy::set_trainer_desc_configs(const ConfigDict& configs) {
  const std::string what = "trainer_desc_configs";
  MILLRACE_RETURN_IF_ERROR(
      check_keys(configs,
                 {"trainer", "device_worker", "dump_fields_path", "dump_fields", "dump_param",
                  "stat_var_names", "local_sparse", "remote_sparse"},
                 what));
  ConfigReader read(configs, what);
  TrainerDescConfigs next = trainer_;
  next.trainer = read.text("trainer", next.trainer);
  next.device_worker = read.text("device_worker", next.device_worker);
  next.dump_fields_path = read.text("dump_fields_path", next.dump_fields_path);
  for (const auto& [key, list] : {std::pair("dump_fields", &next.dump_fields),
                                  {"dump_param", &next.dump_param},
                                  {"stat_var_names", &next.stat_var_names},
                                  {"local_sparse", &next.local_sparse},
                                  {"remote_sparse", &next.remote_sparse}}) {
    if (read.has(key)) *list = read.texts(key);
  }
  MILLRACE_RETURN_IF_ERROR(read.status());
  trainer_ = std::move(next);
  return Ok();
}

Status DistributedStrategy::set_fs_client_param(const ConfigDict& configs) {
  const std::string what = "fs_client_param";
  MILLRACE_RETURN_IF_ERROR(check_keys(configs, {"uri", "user", "passwd", "hadoop_bin"}, what));
  ConfigReader read(configs, what);
  FsClientConfigs next = fs_client_;
  next.uri = read.text("uri", next.uri);
  next.user = read.text("user", next.user);
  next.passwd = read.text("passwd", next.passwd);
  next.hadoop_bin = read.text("hadoop_bin", next.hadoop_bin);
  MILLRACE_RETURN_IF_ERROR(read.status());
  fs_client_ = std::move(next);
  return Ok();
}

Status DistributedStrategy::set_table_configs(const std::string& table, const ConfigDict& configs) {
  MILLRACE_RETURN_IF_ERROR(check_table_settings(table, configs));
  tables_[table] = configs;
  return Ok();
}

const ConfigDict* DistributedStrategy::table_configs(const std::string& table) const {
  const auto found = tables_.find(table);
  return found == tables_.end() ? nullptr : &found->second;
}

std::vector<std::string> DistributedStrategy::tables_with_settings() const {
  std::vector<std::string> names;
  for (const auto& [name, settings] : tables_) names.push_back(name);
  return names;
}

StatusOr<ps::CommMode> DistributedStrategy::mode() const {
  if (async_.k_steps == 0) return a_sync_ ? ps::CommMode::kAsync : ps::CommMode::kSync;
  if (a_sync_ && async_.k_steps > 0) return ps::CommMode::kGeo;
  return InvalidArgument(
      "a_sync={} with a_sync_configs.k_steps={} is no mode; expected k_steps 0 (sync, async) or "
      "a_sync=true with k_steps > 0 (geo)",
      a_sync_, async_.k_steps);
}

}  // namespace millrace::fleet
