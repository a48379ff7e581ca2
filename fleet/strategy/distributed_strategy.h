#pragma once

#include <map>
#include <string>
#include <vector>

#include "fleet/strategy/config_dict.h"
#include "framework/base/status.h"
#include "ps/communicator/comm_options.h"

namespace millrace::fleet {

/// a_sync_configs; names and defaults of the original. Only settings with a comment have an effect.
/// Source: spec/fleet.md section 3.
struct AsyncConfigs {
  int64_t k_steps = -1;  ///< > 0: geo, steps between pushes; 0: sync or async
  int64_t max_merge_var_num = 1;
  int64_t send_queue_size = 16;
  bool independent_recv_thread = false;
  int64_t min_send_grad_num_before_recv = 1;
  int64_t thread_pool_size = 1;
  int64_t send_wait_times = 1;
  bool runtime_split_send_recv = false;
  bool launch_barrier = true;  ///< workers wait for their servers
  std::string heter_worker_device_guard = "cpu";
  int64_t lr_decay_steps = 10;
  int64_t use_ps_gpu = 0;  ///< tables in GPU memory: refused
};

/// trainer_desc_configs: the trainer that runs the program, and what it dumps.
struct TrainerDescConfigs {
  std::string trainer;
  std::string device_worker;
  std::string dump_fields_path;
  std::vector<std::string> dump_fields;
  std::vector<std::string> dump_param;
  std::vector<std::string> stat_var_names;
  std::vector<std::string> local_sparse;
  std::vector<std::string> remote_sparse;
};

/// fs_client_param: the file system on which tables are stored.
struct FsClientConfigs {
  std::string uri;
  std::string user;
  std::string passwd;
  std::string hadoop_bin;
};

/// How a parameter-server job trains. Setters check their arguments and leave the strategy
/// unchanged on an error. Source: spec/fleet.md section 3.
class DistributedStrategy {
 public:
  /// Switches between synchronous and asynchronous training; sets k_steps to 0.
  void set_a_sync(bool on);
  [[nodiscard]] bool a_sync() const { return a_sync_; }

  /// Errors: kInvalidArgument for an unknown key, a value of another type, or a device guard other
  /// than cpu, gpu and xpu.
  Status set_a_sync_configs(const ConfigDict& configs);
  [[nodiscard]] const AsyncConfigs& a_sync_configs() const { return async_; }

  /// Errors: as above.
  Status set_trainer_desc_configs(const ConfigDict& configs);
  [[nodiscard]] const TrainerDescConfigs& trainer_desc_configs() const { return trainer_; }

  /// Errors: as above.
  Status set_fs_client_param(const ConfigDict& configs);
  [[nodiscard]] const FsClientConfigs& fs_client_param() const { return fs_client_; }

  /// Settings of one sparse table (fleet_desc_configs), see table_settings.h.
  /// Errors: kInvalidArgument for an unknown key, table class, accessor or rule, or another type.
  Status set_table_configs(const std::string& table, const ConfigDict& configs);
  /// Null if the table has no settings.
  [[nodiscard]] const ConfigDict* table_configs(const std::string& table) const;
  /// Names of tables with settings, sorted.
  [[nodiscard]] std::vector<std::string> tables_with_settings() const;
  /// False: tables with settings have no show and click (SparseAccessor).
  void set_use_cvm(bool on) { use_cvm_ = on; }
  [[nodiscard]] bool use_cvm() const { return use_cvm_; }

  /// True: adam of dense tables uses decaying sums of squares (adam_d2sum).
  void set_adam_d2sum(bool on) { adam_d2sum_ = on; }
  [[nodiscard]] bool adam_d2sum() const { return adam_d2sum_; }

  /// True: tables may have every optimizer whose op servers can run. False, as in the original:
  /// sgd and adam; a job with another optimizer is refused, except in geo mode.
  void set_all_optimizers(bool on) { all_optimizers_ = on; }
  [[nodiscard]] bool all_optimizers() const { return all_optimizers_; }

  /// Sync for (false, 0), async for (true, 0), geo for (true, k > 0).
  /// Errors: kInvalidArgument for all other pairs of a_sync and k_steps.
  [[nodiscard]] StatusOr<ps::CommMode> mode() const;

 private:
  bool a_sync_ = true;
  AsyncConfigs async_;
  TrainerDescConfigs trainer_;
  FsClientConfigs fs_client_;
  std::map<std::string, ConfigDict> tables_;
  bool use_cvm_ = true;
  bool adam_d2sum_ = false;
  bool all_optimizers_ = false;
};

}  // namespace millrace::fleet
