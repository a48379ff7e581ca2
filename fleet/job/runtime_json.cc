#include "fleet/job/runtime_json.h"

#include "fleet/job/contexts.h"
#include "fleet/strategy/communicator_flags.h"
#include "framework/base/json_writer.h"

namespace millrace::fleet {
namespace {

template <typename List>
void put_list(JsonWriter& out, const std::string& key, const List& values) {
  out.key(key).begin_array().inline_array();
  for (const auto& value : values) out.value(value);
  out.end_array();
}

void put_tables(JsonWriter& out, const std::string& key,
                const std::map<int32_t, std::vector<std::string>>& tables) {
  out.key(key).begin_object();
  for (const auto& [id, names] : tables) put_list(out, std::to_string(id), names);
  out.end_object();
}

void put_context(JsonWriter& out, const ps::CommContext& context) {
  out.begin_object()
      .member("aggregate", context.aggregate)
      .member("is_datanorm_table", context.is_datanorm_table)
      .member("is_distributed", context.is_distributed)
      .member("is_sparse", context.is_sparse)
      .member("is_tensor_table", context.is_tensor_table);
  put_list(out, "origin_varnames", context.origin_varnames);
  put_list(out, "sections", context.sections);
  put_list(out, "split_endpoints", context.split_endpoints);
  put_list(out, "split_varnames", context.split_varnames);
  out.member("table_id", context.table_id).member("trainer_id", context.trainer_id).end_object();
}

struct TrainerKind {
  std::string trainer;
  std::string device_worker;
  bool by_tables = false;  // pulls and pushes tables itself
};

TrainerKind trainer_kind(const TrainerDescConfigs& configs, ps::CommMode mode, bool is_server) {
  TrainerKind kind;
  if (!is_server) {
    kind.by_tables = mode == ps::CommMode::kAsync;
    kind.trainer = kind.by_tables ? "DistMultiTrainer" : "MultiTrainer";
    kind.device_worker = kind.by_tables ? "DownpourLite" : "Hogwild";
  }
  if (!configs.trainer.empty()) kind.trainer = configs.trainer;
  if (!configs.device_worker.empty()) kind.device_worker = configs.device_worker;
  return kind;
}

// The tables of the job's only program.
void put_program_configs(JsonWriter& out, const transpiler::TablePlan& plan) {
  std::vector<int> dense;
  for (const transpiler::DenseTablePlan& table : plan.dense) dense.push_back(table.table_id);
  out.key("program_configs").begin_object().key("PROGRAM_0").begin_object();
  put_list(out, "pull_dense", dense);
  put_list(out, "pull_sparse", std::vector<int>());
  put_list(out, "push_dense", dense);
  put_list(out, "push_sparse", std::vector<int>());
  out.end_object().end_object();
}

void put_fleet_opt(JsonWriter& out, const transpiler::TablePlan& plan, const JobSpec& job,
                   const JobRole& role, ps::CommMode mode) {
  const TrainerDescConfigs& configs = job.strategy.trainer_desc_configs();
  const TrainerKind kind = trainer_kind(configs, mode, role.is_server);
  out.key("fleet_opt").begin_object();
  if (kind.by_tables) put_tables(out, "dense_table_config", dense_receives(plan));
  out.member("device_worker", kind.device_worker);
  put_list(out, "dump_fields", configs.dump_fields);
  out.member("dump_fields_path", configs.dump_fields_path);
  put_list(out, "dump_param", configs.dump_param);
  put_list(out, "local_sparse", configs.local_sparse);
  out.member("mpi_rank", role.index).member("mpi_size", job.workers);
  if (kind.by_tables) put_program_configs(out, plan);
  put_list(out, "remote_sparse", configs.remote_sparse);
  put_list(out, "stat_var_names", configs.stat_var_names);
  out.member("trainer", kind.trainer).end_object();
}

}  // namespace

StatusOr<std::string> runtime_json(const transpiler::TablePlan& plan, const JobSpec& job,
                                   const JobRole& role) {
  MILLRACE_ASSIGN_OR_RETURN(const ps::CommMode mode, job.strategy.mode());
  JsonWriter out;
  out.begin_object().key("barrier_table_id");
  if (role.is_server)
    out.null();
  else
    out.value(plan.barrier_id);
  out.key("communicator_flags").begin_object();
  for (const auto& [key, value] :
       communicator_flags(mode, job.strategy.a_sync_configs().k_steps, job.environment))
    out.member(key, value);
  out.end_object().member("communicator_mode", static_cast<int>(mode));
  if (job.all_reduces_dense) out.member("dense_gradients", "all_reduce");
  put_list(out, "endpoints", job.servers);
  put_fleet_opt(out, plan, job, role, mode);
  put_tables(out, "recv_dense", dense_receives(plan));
  put_tables(out, "recv_sparse", sparse_receives(plan));
  out.member("role_id", role.index);
  if (job.all_reduces_dense) out.member("scheduled_rate", job.scheduled_rate);
  out.key("send_context").begin_object();
  for (const auto& [name, context] : send_contexts(plan, job.servers, role.index)) {
    out.key(name);
    put_context(out, context);
  }
  out.end_object();
  if (job.all_reduces_dense) put_list(out, "trainer_endpoints", job.worker_endpoints);
  return out.end_object().take();
}

}  // namespace millrace::fleet
