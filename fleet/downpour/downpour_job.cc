#include "fleet/downpour/downpour_job.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fleet/downpour/downpour_tables.h"
#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/op_attrs.h"
#include "ops/construct/builder.h"
#include "ops/minimize/minimize.h"
#include "transpiler/distribute/table_plan.h"

namespace millrace::fleet {

namespace downpour_job {

// Lookups of the distributed table fetch their rows from the servers, as embeddings of other fleet
// jobs do.
StatusOr<std::string> fetch_rows_from_servers(Program& main) {
  std::string table;
  for (Op& op : main.root().ops()) {
    if (!transpiler::is_lookup(op) || !get_attr_or(op, "is_distributed", false)) continue;
    table = op.first_input("W").str();
    op.set_bool("is_distributed", false);
    op.set_bool("is_sparse", true);
    op.set_bool("remote_prefetch", true);
  }
  if (!table.empty()) return table;
  return InvalidArgument(
      "the program has no distributed lookup table (lookups with is_distributed), which is sparse "
      "table 0 of a DownpourSGD job");
}

// Remarks of a fleet job about settings that its description has, not its user.
bool is_of_description(const std::string& remark) {
  const std::string_view text = remark;
  return text.find("fleet_desc_configs") != std::string_view::npos ||
         text.starts_with("adam_d2sum decays by");
}

// Named by the caller or by the environment.
bool has_heter_workers(const JobSpec& spec) {
  return !spec.heter.endpoints.empty() ||
         (spec.environment &&
          !spec.environment("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST").value_or("").empty());
}

bool has_statistics(const DownpourResult& made) {
  return std::ranges::any_of(made.info.program_configs,
                             [](const auto& each) { return each.second.pull_dense.size() > 1; });
}

template <typename List>
void put_values(JsonWriter& out, const std::string& key, const List& values) {
  out.key(key).begin_array().inline_array();
  for (const auto& value : values) out.value(value);
  out.end_array();
}

}  // namespace downpour_job

std::string opt_info_json(const DownpourInfo& info) {
  using downpour_job::put_values;
  JsonWriter out;
  out.begin_object()
      .member("trainer", info.trainer)
      .member("device_worker", info.device_worker)
      .member("optimizer", info.optimizer)
      .member("use_cvm", info.use_cvm);
  put_values(out, "worker_skipped_ops", info.worker_skipped_ops);
  out.key("program_configs").begin_object();
  for (const auto& [id, tables] : info.program_configs) {
    out.key(id).begin_object();
    put_values(out, "pull_sparse", tables.pull_sparse);
    put_values(out, "push_sparse", tables.push_sparse);
    put_values(out, "pull_dense", tables.pull_dense);
    put_values(out, "push_dense", tables.push_dense);
    out.end_object();
  }
  out.end_object().end_object();
  return out.take();
}

StatusOr<DownpourJob> DownpourJob::create(const ops::OpRegistry& registry, const Program& main,
                                          const Program& startup, const std::string& loss,
                                          const DownpourOptions& options, JobSpec spec) {
  using namespace downpour_job;
  if (has_heter_workers(spec)) return Unimplemented("a DownpourSGD job with heter workers");
  if (spec.all_reduces_dense)
    return Unimplemented("a DownpourSGD job whose workers keep the dense parameters (all_reduce)");
  const std::unique_ptr<Program> described = main.clone();
  MILLRACE_ASSIGN_OR_RETURN(const DownpourResult made,
                            minimize_downpour(registry, {{described.get(), loss}}, options));
  if (has_statistics(made))
    return Unimplemented(
               "running a DownpourSGD job with statistics of data_norm: expected one table of "
               "dense parameters")
        .with_hint("leave out 'pservers' and 'trainers' to write the description");
  MILLRACE_ASSIGN_OR_RETURN(const DownpourTables tables, translate_tables(made.info.fleet_desc));
  DownpourJob job;
  job.info_ = made.info;
  job.remarks_ = made.remarks;
  job.main_ = main.clone();
  job.startup_ = startup.clone();
  if (!options.use_cvm && tables.scales_by_show)
    job.remarks_.emplace_back(
        "without use_cvm the rows of the sparse table have no shows that divide their gradients");
  MILLRACE_ASSIGN_OR_RETURN(const std::string table, fetch_rows_from_servers(*job.main_));
  ops::Builder builder(registry, *job.main_, *job.startup_);
  MILLRACE_RETURN_IF_ERROR(ops::minimize(builder, loss, tables.updates).status());
  spec.strategy = DistributedStrategy();
  spec.strategy.set_a_sync(true);
  spec.strategy.set_use_cvm(options.use_cvm);
  spec.strategy.set_adam_d2sum(tables.adam_d2sum);
  MILLRACE_RETURN_IF_ERROR(spec.strategy.set_table_configs(table, tables.sparse));
  MILLRACE_ASSIGN_OR_RETURN(FleetJob fleet_job,
                            FleetJob::create(*job.main_, *job.startup_, std::move(spec)));
  job.job_ = std::make_unique<FleetJob>(std::move(fleet_job));
  job.tables_ = std::make_unique<DownpourTables>(tables);
  return job;
}

DownpourJob::DownpourJob() = default;
DownpourJob::DownpourJob(DownpourJob&&) noexcept = default;
DownpourJob& DownpourJob::operator=(DownpourJob&&) noexcept = default;
DownpourJob::~DownpourJob() = default;

StatusOr<RoleOutput> DownpourJob::role(const JobRole& role) const {
  MILLRACE_ASSIGN_OR_RETURN(RoleOutput out, job_->role(role));
  std::erase_if(out.programs.remarks, downpour_job::is_of_description);
  out.programs.remarks.insert(out.programs.remarks.begin(), remarks_.begin(), remarks_.end());
  MILLRACE_ASSIGN_OR_RETURN(out.ps_desc, with_decays(*tables_, out.ps_desc));
  return out;
}

}  // namespace millrace::fleet
