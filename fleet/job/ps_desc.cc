#include "fleet/job/ps_desc.h"

#include <algorithm>
#include <limits>

#include <fmt/ranges.h>
#include <google/protobuf/text_format.h>

#include "fleet/job/common_accessor.h"
#include "fleet/job/sparse_accessor.h"
#include "fleet/strategy/table_settings.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "proto/fleet_desc.pb.h"
#include "ps/table/routing.h"
#include "ps/table/update_op.h"

namespace millrace::fleet {
namespace {

namespace desc = fleet_desc;
using transpiler::DenseTablePlan;
using transpiler::SparseTablePlan;

constexpr uint64_t kShards = 256;         // dense, geo and barrier tables
constexpr uint64_t kSparseShards = 1000;  // unless a setting says otherwise
constexpr const char* kMergeAccessor = "CommMergeAccessor";

// Descriptions have numbers of 32 bits.
Status check_size(const TableFacts& facts) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  if (facts.size >= 0 && facts.size <= kMost && facts.width <= kMost) return Ok();
  return Unimplemented("the table of '{}' has {} {}, expected 0 to {}", facts.param, facts.size,
                       facts.is_sparse ? "rows" : "elements", kMost);
}

// True if an adam rule of settings has no rate of its own.
bool takes_rate_of_optimizer(const desc::TableAccessorParameter& accessor) {
  const auto takes = [](const desc::SparseCommonSGDRuleParameter& rule) {
    const bool is_adam = !rule.has_name() || llvm::StringRef(rule.name()).contains("Adam");
    return is_adam && !rule.adam().has_learning_rate();
  };
  return takes(accessor.embed_sgd_param()) || takes(accessor.embedx_sgd_param());
}

class Describer {
 public:
  Describer(const Program& main, const Program& startup, const transpiler::TablePlan& plan,
            const JobSpec& job, const JobRole& role, ps::CommMode mode,
            std::vector<std::string>& remarks)
      : main_(main),
        startup_(startup),
        plan_(plan),
        job_(job),
        role_(role),
        mode_(mode),
        remarks_(remarks) {}

  StatusOr<desc::DownpourServerParameter> tables() {
    desc::DownpourServerParameter out;
    for (const SparseTablePlan& table : plan_.sparse)
      MILLRACE_RETURN_IF_ERROR(sparse(table, *out.add_downpour_table_param()));
    for (const DenseTablePlan& table : plan_.dense)
      MILLRACE_RETURN_IF_ERROR(dense(table, *out.add_downpour_table_param()));
    barrier(*out.add_downpour_table_param());
    return out;
  }

 private:
  [[nodiscard]] bool is_sync() const { return mode_ == ps::CommMode::kSync; }

  // The entry policy of an embedding; only the older lookup ops can have one.
  [[nodiscard]] std::string entry_of(const std::string& param) const {
    for (const Op* const op : main_.root().readers_of(param)) {
      if (!transpiler::is_lookup(*op) || op->first_input("W") != param) continue;
      if (op->type() == "lookup_table") return get_attr_or(*op, "entry", std::string("none"));
      return "none";
    }
    return "none";
  }

  StatusOr<CommonAccessor> common(const TableFacts& facts, const std::string& table_name,
                                  const std::string& entry, bool sync,
                                  desc::CommonAccessorParameter& out) {
    MILLRACE_RETURN_IF_ERROR(check_size(facts));
    MILLRACE_ASSIGN_OR_RETURN(CommonAccessor accessor,
                              describe_optimizer(main_, startup_, job_, role_, facts));
    out.set_name(accessor.name);
    out.set_table_name(table_name);
    for (const std::string& param : accessor.params) out.add_params(param);
    for (const int64_t dim : accessor.dims) out.add_dims(static_cast<uint32_t>(dim));
    for (const std::string& text : accessor.initializers) out.add_initializers(text);
    out.set_entry(entry);
    out.set_trainer_num(job_.workers);
    out.set_sync(sync);
    out.set_table_num(static_cast<uint32_t>(facts.size));
    out.set_table_dim(static_cast<uint32_t>(facts.width));
    std::string attrs;
    for (const std::string& attr : accessor.attrs) attrs += (attrs.empty() ? "" : "#") + attr;
    out.set_attr(attrs);
    return accessor;
  }

  Status sparse(const SparseTablePlan& plan, desc::TableParameter& out) {
    const TableFacts facts{
        .param = plan.var.param, .size = plan.dims[0], .width = plan.dims[1], .is_sparse = true};
    out.set_table_id(static_cast<uint64_t>(plan.table_id));
    out.set_type(desc::PS_SPARSE_TABLE);
    const std::string entry = entry_of(facts.param);
    if (mode_ == ps::CommMode::kGeo) {
      out.set_table_class("MemorySparseGeoTable");
      out.set_shard_num(kShards);
      out.mutable_accessor()->set_accessor_class(kMergeAccessor);
      out.mutable_accessor()->set_fea_dim(static_cast<uint32_t>(facts.size));
      out.mutable_accessor()->set_embedx_dim(static_cast<uint32_t>(facts.width));
      if (entry != "none")
        remarks_.push_back("the entry policy '" + entry + "' of '" + facts.param +
                           "' has no effect in geo mode, where workers hold all rows");
      MILLRACE_ASSIGN_OR_RETURN(
          const CommonAccessor accessor,
          common(facts, facts.param, entry, /*sync=*/false, *out.mutable_common()));
      if (accessor.moves_all_rows)
        remarks_.push_back("all rows of '" + facts.param +
                           "' change in every step of a worker, by its optimizer or by decay, but "
                           "geo workers send only rows that they have looked up");
      return Ok();
    }
    out.set_table_class("MemorySparseTable");
    out.set_shard_num(kSparseShards);
    const auto servers = static_cast<uint32_t>(job_.servers.size());
    if (out.sparse_table_cache_file_num() > servers) out.set_sparse_table_cache_file_num(servers);
    MILLRACE_ASSIGN_OR_RETURN(const CommonAccessor accessor,
                              common(facts, facts.param, entry, is_sync(), *out.mutable_common()));
    if (const ConfigDict* const settings = job_.strategy.table_configs(facts.param)) {
      MILLRACE_RETURN_IF_ERROR(
          apply_table_settings(facts.param, *settings, job_.strategy.use_cvm(), out, remarks_));
    }
    const bool takes_rate = takes_rate_of_optimizer(out.accessor());
    MILLRACE_RETURN_IF_ERROR(complete_accessor(accessor, facts, *out.mutable_accessor(), remarks_));
    if (takes_rate && !follows_optimizer(out) && job_rate(main_).is_computed)
      return Unimplemented(
          "fleet_desc_configs['{}'] names no learning rate, and that of the optimizer is a "
          "schedule, which rules of settings do not follow",
          facts.param);
    if (accessor.rate_factor != 1) out.mutable_common()->set_rate_factor(accessor.rate_factor);
    MILLRACE_RETURN_IF_ERROR(set_terms(accessor, facts.param, follows_optimizer(out), out));
    remark_rows(accessor, facts.param, follows_optimizer(out), out);
    return Ok();
  }

  Status set_terms(const CommonAccessor& accessor, const std::string& param, bool follows,
                   desc::TableParameter& out) {
    const bool decays = accessor.l1 != 0 || accessor.l2 != 0;
    if (!decays && !accessor.clip_min) return Ok();
    if (!follows)
      return Unimplemented(
          "the gradient of '{}' is clipped or regularized, but its table has the rule of its "
          "fleet_desc_configs, which does neither",
          param);
    desc::RowTermsParameter& terms = *out.mutable_common()->mutable_row_terms();
    if (accessor.clip_min) {
      terms.set_clip_min(*accessor.clip_min);
      terms.set_clip_max(*accessor.clip_max);
    }
    if (accessor.l1 != 0) terms.set_l1(accessor.l1);
    if (accessor.l2 != 0) terms.set_l2(accessor.l2);
    if (decays)
      remarks_.push_back("rows of '" + param +
                         "' are regularized only in steps that use them; one process regularizes "
                         "all rows in every step");
    return Ok();
  }

  // Settings take precedence over the program, whose optimizer may be another.
  void remark_settings(const CommonAccessor& accessor, const std::string& param,
                       const desc::TableParameter& table) {
    const std::string& rule = table.accessor().embedx_sgd_param().name();
    const bool is_same = (accessor.name == "adam" && rule == "SparseAdamSGDRule") ||
                         (accessor.name == "sgd" && rule == "SparseNaiveSGDRule");
    if (!is_same)
      remarks_.push_back("rows of '" + param + "' are updated by " + rule +
                         " of their fleet_desc_configs, not by " + accessor.name +
                         " of the program");
    if (!job_.scheduled_rate.empty() || job_rate(main_).is_computed)
      remarks_.push_back("the rate of '" + param +
                         "' is that of its fleet_desc_configs and does not follow the schedule");
  }

  void remark_rows(const CommonAccessor& accessor, const std::string& param, bool follows,
                   const desc::TableParameter& out) {
    const ps::UpdateOpKind* const kind = ps::find_update_op(accessor.name);
    if (!follows) {
      remark_settings(accessor, param, out);
      if (accessor.rate_factor != 1)
        remarks_.push_back("the own learning rate of '" + param +
                           "' has no effect: its table has the rate of its fleet_desc_configs");
      return;
    }
    if (accessor.name == "adam") {
      remarks_.push_back("rows of '" + param +
                         "' are updated by adam only in steps that use them, and each row counts "
                         "its own steps, as on servers of the original; one process without "
                         "lazy_mode updates all rows in every step");
    } else if (kind != nullptr && kind->moves_without_gradient) {
      remarks_.push_back("rows of '" + param + "' are updated by " + accessor.name +
                         " only in steps that use them, as by adam on servers of the original; one "
                         "process updates all rows in every step");
    }
  }

  Status dense(const DenseTablePlan& plan, desc::TableParameter& out) {
    if (plan.vars.empty()) return Ok();  // only statistics of data_norm: no columns
    const TableFacts facts{
        .param = plan.vars.front().param, .size = plan.elements, .is_data_norm = plan.is_data_norm};
    out.set_table_id(static_cast<uint64_t>(plan.table_id));
    out.set_type(desc::PS_DENSE_TABLE);
    out.set_table_class("MemoryDenseTable");
    out.set_shard_num(kShards);
    out.mutable_accessor()->set_accessor_class(kMergeAccessor);
    out.mutable_accessor()->set_fea_dim(static_cast<uint32_t>(facts.size));
    out.mutable_accessor()->set_embedx_dim(1);
    MILLRACE_ASSIGN_OR_RETURN(
        const CommonAccessor accessor,
        common(facts, "MergedDense", "none", is_sync(), *out.mutable_common()));
    if (accessor.name == "adam_d2sum")
      remarks_.push_back(
          "adam_d2sum decays by 0.99 and 0.9999 and has epsilon 1e-8, as in the original; beta1, "
          "beta2 and epsilon of adam have no effect");
    if (!plan.is_data_norm) return add_ranges(plan, accessor, *out.mutable_common());
    if (mode_ == ps::CommMode::kGeo) return Ok();  // workers update
    remarks_.push_back(
        "statistics of data_norm on servers decay by 0.999999 in each push, which then adds their "
        "gradients, as in the original; the optimizer and summary_decay_rate of its ops have no "
        "effect on them");
    return Ok();
  }

  // The dense tables of the original have one optimizer for all their parameters. Where these
  // differ, and for ops that need whole parameters, the table has the update of each.
  Status add_ranges(const DenseTablePlan& plan, const CommonAccessor& first,
                    desc::CommonAccessorParameter& out) const {
    if (mode_ == ps::CommMode::kGeo) return Ok();  // workers update
    std::vector<CommonAccessor> all;
    const ps::UpdateOpKind* const kind = ps::find_update_op(first.name);
    bool is_alike = first.rate_factor == 1 && (kind == nullptr || !kind->is_whole);
    for (const transpiler::TrainedVar& var : plan.vars) {
      const TableFacts facts{.param = var.param, .size = plan.elements};
      MILLRACE_ASSIGN_OR_RETURN(all.emplace_back(),
                                describe_optimizer(main_, startup_, job_, role_, facts));
      is_alike = is_alike && all.back().updates_like(first);
    }
    if (is_alike) return Ok();
    int64_t begin = 0;
    for (size_t i = 0; i < all.size(); ++i)
      MILLRACE_RETURN_IF_ERROR(add_range(plan, i, all[i], begin, out));
    return Ok();
  }

  // \param begin  position of the parameter among those of all servers; moved to its end
  Status add_range(const DenseTablePlan& plan, size_t i, const CommonAccessor& accessor,
                   int64_t& begin, desc::CommonAccessorParameter& out) const {
    const std::string& param = plan.vars[i].param;
    const ps::UpdateOpKind* const kind = ps::find_update_op(accessor.name);
    if (kind == nullptr)
      return Unimplemented(
          "'{}' is updated by {} [{}], unlike other dense parameters of the job; tables update "
          "parameters differently by {} only",
          param, accessor.name, fmt::join(accessor.attrs, ", "), ps::update_op_types());
    const Var* const var = main_.root().find_var(param);
    int64_t elements = 1;
    for (const int64_t dim : var->dims()) elements *= dim;
    const auto servers = static_cast<int64_t>(job_.servers.size());
    const int64_t share = ps::dense_range(plan.elements, servers, 0).count;
    if (kind->is_whole && elements > 0 && begin / share != (begin + elements - 1) / share)
      return Unimplemented(
                 "'{}' is updated by {}, which needs the whole parameter, but {} servers share the "
                 "dense parameters so that it is split",
                 param, accessor.name, servers)
          .with_hint("use another number of servers; one server has all dense parameters");
    const ps::DenseRange range_here = ps::dense_range(plan.elements, servers, role_.index);
    const int64_t own = range_here.begin;
    const int64_t own_end = own + range_here.count;
    desc::UpdateRangeParameter& range = *out.add_update_ranges();
    range.set_param(param);
    range.set_elements(static_cast<uint64_t>(
        std::max<int64_t>(0, std::min(begin + elements, own_end) - std::max(begin, own))));
    range.set_name(accessor.name);
    range.set_attr(fmt::format("{}", fmt::join(accessor.attrs, "#")));
    // the first column is the parameter, the last one the rate
    for (size_t k = 1; k + 1 < accessor.params.size(); ++k) {
      range.add_params(accessor.params[k]);
      range.add_initializers(accessor.initializers[k]);
    }
    if (accessor.rate_factor != 1) range.set_rate_factor(accessor.rate_factor);
    begin += elements;
    return Ok();
  }

  void barrier(desc::TableParameter& out) const {
    out.set_table_id(static_cast<uint64_t>(plan_.barrier_id));
    out.set_table_class("BarrierTable");
    out.set_shard_num(kShards);
    out.set_type(desc::PS_OTHER_TABLE);
    out.mutable_accessor()->set_accessor_class(kMergeAccessor);
    out.mutable_accessor()->set_fea_dim(0);
    out.mutable_accessor()->set_embedx_dim(0);
    out.mutable_common()->set_name("");
    out.mutable_common()->set_table_name("barrier_table");
    out.mutable_common()->set_sync(is_sync());
    out.mutable_common()->set_entry("none");
    out.mutable_common()->set_trainer_num(job_.workers);
  }

  const Program& main_;
  const Program& startup_;
  const transpiler::TablePlan& plan_;
  const JobSpec& job_;
  const JobRole& role_;
  const ps::CommMode mode_;
  std::vector<std::string>& remarks_;
};

void set_service(desc::ServerServiceParameter& out) {
  out.set_server_class("BrpcPsServer");
  out.set_client_class("BrpcPsClient");
  out.set_service_class("BrpcPsService");
  out.set_start_server_port(0);
  out.set_server_thread_num(12);
}

void set_store(const FsClientConfigs& configs, desc::PSParameter& out) {
  if (configs.uri.empty() && configs.user.empty() && configs.passwd.empty() &&
      configs.hadoop_bin.empty())
    return;
  desc::FsClientParameter& store = *out.mutable_fs_client_param();
  store.set_uri(configs.uri);
  store.set_user(configs.user);
  store.set_passwd(configs.passwd);
  store.set_hadoop_bin(configs.hadoop_bin);
}

}  // namespace

StatusOr<std::string> describe_tables(const Program& main, const Program& startup,
                                      const transpiler::TablePlan& plan, const JobSpec& job,
                                      const JobRole& role, std::vector<std::string>& remarks) {
  MILLRACE_ASSIGN_OR_RETURN(const ps::CommMode mode, job.strategy.mode());
  Describer describer(main, startup, plan, job, role, mode, remarks);
  MILLRACE_ASSIGN_OR_RETURN(desc::DownpourServerParameter server, describer.tables());
  set_service(*server.mutable_service_param());
  desc::PSParameter out;
  if (!role.is_server) {
    *out.mutable_worker_param()->mutable_downpour_worker_param()->mutable_downpour_table_param() =
        server.downpour_table_param();
  }
  *out.mutable_server_param()->mutable_downpour_server_param() = std::move(server);
  set_store(job.strategy.fs_client_param(), out);
  std::string text;
  if (!google::protobuf::TextFormat::PrintToString(out, &text))
    return Internal("the description of the tables cannot be printed");
  return text;
}

}  // namespace millrace::fleet
