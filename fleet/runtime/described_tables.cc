#include "fleet/runtime/described_tables.h"

#include <algorithm>
#include <optional>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "fleet/job/desc_text.h"
#include "fleet/job/sparse_accessor.h"
#include "fleet/runtime/described_updates.h"
#include "framework/base/errors.h"
#include "proto/fleet_desc.pb.h"
#include "ps/table/dense_table.h"
#include "ps/table/rate_table.h"
#include "ps/table/sparse_geo_table.h"
#include "ps/table/tensor_table.h"

namespace millrace::fleet {
namespace {

namespace desc = fleet_desc;

StatusOr<desc::DownpourServerParameter> server_description(const std::string& text) {
  desc::PSParameter all;
  MILLRACE_RETURN_IF_ERROR(parse_description(text, "ps_desc", all));
  return all.server_param().downpour_server_param();
}

template <typename Rule>
Status set_bounds(const Rule& from, ps::SparseRuleOptions& to) {
  if (from.weight_bounds_size() == 0) return Ok();
  if (from.weight_bounds_size() != 2)
    return InvalidArgument("ps_desc: expected two weight_bounds or none, found {}",
                           from.weight_bounds_size());
  to.min_bound = from.weight_bounds(0);
  to.max_bound = from.weight_bounds(1);
  return Ok();
}

StatusOr<ps::SparseRuleOptions> described_rule(const desc::SparseCommonSGDRuleParameter& from) {
  ps::SparseRuleOptions rule;
  MILLRACE_ASSIGN_OR_RETURN(rule.kind, ps::parse_sparse_rule(from.name()));
  const auto set = [&](const auto& part) {
    rule.learning_rate = static_cast<float>(part.learning_rate());
    rule.initial_range = static_cast<float>(part.initial_range());
    return set_bounds(part, rule);
  };
  using Kind = ps::SparseRuleOptions::Kind;
  if (rule.kind == Kind::kNaive) {
    MILLRACE_RETURN_IF_ERROR(set(from.naive()));
  } else if (rule.kind == Kind::kAdagrad || rule.kind == Kind::kStdAdagrad) {
    MILLRACE_RETURN_IF_ERROR(set(from.adagrad()));
    rule.initial_g2sum = static_cast<float>(from.adagrad().initial_g2sum());
  } else {
    MILLRACE_RETURN_IF_ERROR(set(from.adam()));
    rule.beta1 = static_cast<float>(from.adam().beta1_decay_rate());
    rule.beta2 = static_cast<float>(from.adam().beta2_decay_rate());
    rule.epsilon = static_cast<float>(from.adam().ada_epsilon());
  }
  return rule;
}

StatusOr<ps::AccessorOptions> accessor_of(const desc::TableAccessorParameter& from) {
  ps::AccessorOptions accessor;
  MILLRACE_ASSIGN_OR_RETURN(accessor.kind, ps::parse_accessor(from.accessor_class()));
  accessor.fea_dim = static_cast<int>(from.fea_dim());
  accessor.embedx_dim = static_cast<int>(from.embedx_dim());
  accessor.embedx_threshold = static_cast<float>(from.embedx_threshold());
  const desc::CtrAccessorParameter& stats = from.ctr_accessor_param();
  accessor.nonclk_coeff = stats.nonclk_coeff();
  accessor.click_coeff = stats.click_coeff();
  accessor.base_threshold = stats.base_threshold();
  accessor.delta_threshold = stats.delta_threshold();
  accessor.delta_keep_days = stats.delta_keep_days();
  accessor.show_click_decay_rate = stats.show_click_decay_rate();
  accessor.delete_threshold = stats.delete_threshold();
  accessor.delete_after_unseen_days = stats.delete_after_unseen_days();
  accessor.show_scale = stats.show_scale();
  accessor.zero_init = stats.zero_init();
  MILLRACE_ASSIGN_OR_RETURN(accessor.embed_rule, described_rule(from.embed_sgd_param()));
  MILLRACE_ASSIGN_OR_RETURN(accessor.embedx_rule, described_rule(from.embedx_sgd_param()));
  return accessor;
}

// The number after all tables of the description.
int rate_table_of(const desc::DownpourServerParameter& server) {
  uint64_t last = 0;
  for (const desc::TableParameter& table : server.downpour_table_param())
    last = std::max(last, table.table_id());
  return static_cast<int>(last) + 1;
}

constexpr const char* kDenseTable = "MemoryDenseTable";
constexpr const char* kGeoTable = "MemorySparseGeoTable";

// Workers update their parameters; the table adds up their deltas, and the first worker sets
// initial rows.
StatusOr<ps::SparseTableOptions> geo_options(const desc::TableParameter& from) {
  ps::SparseTableOptions options;
  options.table_id = static_cast<int>(from.table_id());
  options.name = from.common().table_name();
  MILLRACE_ASSIGN_OR_RETURN(options.accessor.kind,
                            ps::parse_accessor(from.accessor().accessor_class()));
  options.accessor.embedx_dim = static_cast<int>(from.accessor().embedx_dim());
  options.accessor.fea_dim = options.accessor.embedx_dim;
  return options;
}

// Uses the program's optimizer in place of the adam rule of the description. The rate is shared.
void run_optimizer(const desc::TableParameter& from, std::shared_ptr<const ps::UpdateOp> op,
                   ps::SparseRuleOptions& rule) {
  const ps::SparseRuleOptions unbounded;
  rule.min_bound = unbounded.min_bound;
  rule.max_bound = unbounded.max_bound;
  rule.learning_rate = from.common().rate_factor();
  rule.corrects_epsilon = true;  // as the adam op does
  rule.op = std::move(op);
  const desc::RowTermsParameter& terms = from.common().row_terms();
  rule.has_terms = from.common().has_row_terms();
  if (terms.has_clip_min()) rule.clip_min = terms.clip_min();
  if (terms.has_clip_max()) rule.clip_max = terms.clip_max();
  rule.l1 = terms.l1();
  rule.l2 = terms.l2();
  if (from.common().name() == "sgd") rule.kind = ps::SparseRuleOptions::Kind::kNaive;
}

StatusOr<ps::SparseTableOptions> sparse_options(const desc::TableParameter& from) {
  if (from.table_class() == kGeoTable) return geo_options(from);
  if (from.table_class() != "MemorySparseTable" && from.table_class() != "SSDSparseTable")
    return Unimplemented("sparse table {} of class '{}' is not implemented", from.table_id(),
                         from.table_class());
  ps::SparseTableOptions options;
  options.table_id = static_cast<int>(from.table_id());
  options.name = from.common().table_name();
  MILLRACE_ASSIGN_OR_RETURN(options.accessor, accessor_of(from.accessor()));
  MILLRACE_ASSIGN_OR_RETURN(options.entry, ps::parse_entry(from.common().entry()));
  if (!follows_optimizer(from)) return options;
  // uses the program's initializer in place of the rule's range
  MILLRACE_ASSIGN_OR_RETURN(options.accessor.weights,
                            ps::parse_initializer(from.common().initializers(0)));
  if (from.common().name() != "sgd" && ps::find_update_op(from.common().name()) == nullptr)
    return Unimplemented("sparse table {} with optimizer '{}' is not implemented", from.table_id(),
                         from.common().name());
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const ps::UpdateOp> op,
                            described_update(from.common()));
  run_optimizer(from, op, options.accessor.embed_rule);
  run_optimizer(from, op, options.accessor.embedx_rule);
  return options;
}

// The initial value of a column of a dense table, which must be a constant.
StatusOr<float> constant_of(const desc::CommonAccessorParameter& common, const std::string& param) {
  const auto at = std::find(common.params().begin(), common.params().end(), param);
  const auto index = static_cast<int>(at - common.params().begin());
  if (at == common.params().end() || index >= common.initializers_size())
    return InvalidArgument("table '{}' has no {}", common.table_name(), param);
  MILLRACE_ASSIGN_OR_RETURN(const ps::Initializer initializer,
                            ps::parse_initializer(common.initializers(index)));
  if (initializer.kind != ps::Initializer::Kind::kConstant)
    return InvalidArgument("table '{}': {} starts with '{}', expected a constant",
                           common.table_name(), param, common.initializers(index));
  return initializer.a;
}

StatusOr<ps::DenseTableOptions> dense_options(const desc::TableParameter& from, uint64_t seed) {
  if (from.table_class() != kDenseTable)
    return Unimplemented("dense table {} of class '{}' is not implemented", from.table_id(),
                         from.table_class());
  const desc::CommonAccessorParameter& common = from.common();
  ps::DenseTableOptions options;
  options.table_id = static_cast<int>(from.table_id());
  options.name = common.table_name();
  options.elements = common.dims_size() > 0 ? common.dims(0) : 0;
  MILLRACE_ASSIGN_OR_RETURN(options.updates, described_ranges(common, options.elements));
  if (options.updates.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(options.rule, ps::parse_dense_rule(common.name()));
  }
  options.seed = seed;
  options.sync = common.sync();
  // the first worker sets initial parameters; the original's description of them may be empty
  using Rule = ps::DenseTableOptions::Rule;
  if (options.rule != Rule::kSum && options.rule != Rule::kSummary) {
    MILLRACE_RETURN_IF_ERROR(constant_of(common, "LearningRate").status());
    options.learning_rate = 1;  // multiplied by the shared rate
  }
  for (const auto& [key, value] : {std::pair("beta1", &options.beta1),
                                   {"beta2", &options.beta2},
                                   {"epsilon", &options.epsilon}}) {
    MILLRACE_ASSIGN_OR_RETURN(*value, described_attr(common.attr(), key, *value));
  }
  if (options.rule == Rule::kAdamD2Sum) {
    MILLRACE_ASSIGN_OR_RETURN(options.momentum, constant_of(common, "MomentDecayRate"));
    MILLRACE_ASSIGN_OR_RETURN(options.decay, constant_of(common, "AdaDecayRate"));
    MILLRACE_ASSIGN_OR_RETURN(options.epsilon, constant_of(common, "AdaEpsilon"));
  }
  return options;
}

// True if the table uses the shared rate.
bool shares_rate(const desc::TableParameter& table) {
  if (table.type() == desc::PS_DENSE_TABLE) {
    return table.table_class() == kDenseTable && table.common().name() != "sum" &&
           table.common().name() != "summary";
  }
  return table.type() == desc::PS_SPARSE_TABLE && table.table_class() != kGeoTable &&
         follows_optimizer(table);
}

// The optimizer's initial rate, which all tables state.
StatusOr<float> first_rate(const desc::DownpourServerParameter& server) {
  std::optional<float> rate;
  for (const desc::TableParameter& table : server.downpour_table_param()) {
    if (!shares_rate(table)) continue;
    MILLRACE_ASSIGN_OR_RETURN(const float own, constant_of(table.common(), "LearningRate"));
    if (rate && *rate != own)
      return Unimplemented("table '{}' has learning rate {}, but others have {}",
                           table.common().table_name(), own, *rate);
    rate = own;
  }
  return rate.value_or(1.0F);
}

Status add_described_table(const desc::TableParameter& from, const ServerTableOptions& options,
                           ps::TableHandler& handler) {
  if (from.type() == desc::PS_DENSE_TABLE) {
    MILLRACE_ASSIGN_OR_RETURN(ps::DenseTableOptions dense, dense_options(from, options.seed));
    const int id = dense.table_id;
    const bool is_sync = dense.sync;
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ps::DenseTable> table,
                              ps::DenseTable::create(std::move(dense)));
    return is_sync ? handler.add_in_steps(std::move(table)) : handler.add(id, std::move(table));
  }
  MILLRACE_ASSIGN_OR_RETURN(ps::SparseTableOptions sparse, sparse_options(from));
  sparse.seed = options.seed;
  if (from.table_class() == kGeoTable) {
    const int id = sparse.table_id;
    MILLRACE_ASSIGN_OR_RETURN(
        std::unique_ptr<ps::Table> table,
        ps::SparseGeoTable::create(std::move(sparse), from.common().trainer_num()));
    return handler.add(id, std::move(table));
  }
  if (from.table_class() == "SSDSparseTable") {
    if (options.disk_path.empty())
      return InvalidArgument("table {} of class SSDSparseTable needs a folder for its rows",
                             from.table_id());
    sparse.disk_path = options.disk_path;
  }
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ps::SparseTable> table,
                            ps::SparseTable::create(std::move(sparse)));
  // Like gradients of dense tables, those of a step are averaged over its workers.
  if (from.common().sync()) return handler.add_in_steps(std::move(table));
  return handler.add_sparse(std::move(table), 0);
}

}  // namespace

StatusOr<std::unique_ptr<ps::TableHandler>> make_described_tables(
    const std::string& description, const ServerTableOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const desc::DownpourServerParameter server,
                            server_description(description));
  int workers = 0;
  for (const desc::TableParameter& table : server.downpour_table_param())
    workers = std::max(workers, table.common().trainer_num());
  if (workers < 1) return InvalidArgument("ps_desc: no table has the number of workers");
  auto handler = std::make_unique<ps::TableHandler>(workers);
  MILLRACE_ASSIGN_OR_RETURN(const float rate, first_rate(server));
  auto shared = std::make_unique<ps::RateTable>(rate);
  for (const desc::TableParameter& table : server.downpour_table_param()) {
    if (table.table_class() == "BarrierTable") continue;  // every handler has barriers
    if (table.type() == desc::PS_OTHER_TABLE)
      return Unimplemented("table {} of class '{}' is not implemented", table.table_id(),
                           table.table_class());
    MILLRACE_RETURN_IF_ERROR(add_described_table(table, options, *handler));
    if (shares_rate(table))
      handler->find(static_cast<int>(table.table_id()))->share_rate(shared->rate());
  }
  const int rate_table = rate_table_of(server);
  if (handler->has_steps()) {
    MILLRACE_RETURN_IF_ERROR(handler->add_in_steps(rate_table, std::move(shared)));
  } else {
    MILLRACE_RETURN_IF_ERROR(handler->add(rate_table, std::move(shared)));
    // workers compute the rate of a schedule from the steps that are counted here
    MILLRACE_RETURN_IF_ERROR(
        handler->add(step_table_after(rate_table),
                     std::make_unique<ps::TensorTable>(workers, ps::RateOfStep())));
  }
  handler->wait_for_values();
  return handler;
}

StatusOr<int> described_rate_table(const std::string& description) {
  MILLRACE_ASSIGN_OR_RETURN(const desc::DownpourServerParameter server,
                            server_description(description));
  return rate_table_of(server);
}

StatusOr<ps::PlanFacts> described_facts(const std::string& description, int server, int servers,
                                        int workers) {
  MILLRACE_ASSIGN_OR_RETURN(const auto from, server_description(description));
  ps::PlanFacts facts{fmt::format("server {}", server), fmt::format("{} servers", servers),
                      fmt::format("{} workers", workers)};
  for (desc::TableParameter table : from.downpour_table_param()) {
    table.mutable_common()->clear_dims();
    for (desc::UpdateRangeParameter& range : *table.mutable_common()->mutable_update_ranges())
      range.clear_elements();
    facts.push_back(
        fmt::format("described table {}: {}", table.table_id(), table.ShortDebugString()));
  }
  return facts;
}

StatusOr<std::map<int, std::vector<DescribedColumn>>> described_columns(
    const std::string& description) {
  MILLRACE_ASSIGN_OR_RETURN(const desc::DownpourServerParameter server,
                            server_description(description));
  std::map<int, std::vector<DescribedColumn>> tables;
  for (const desc::TableParameter& from : server.downpour_table_param()) {
    if (from.type() != desc::PS_DENSE_TABLE) continue;
    MILLRACE_ASSIGN_OR_RETURN(ps::DenseTableOptions options, dense_options(from, 0));
    std::vector<DescribedColumn>& columns = tables[options.table_id];
    MILLRACE_ASSIGN_OR_RETURN(const auto table, ps::DenseTable::create(std::move(options)));
    MILLRACE_RETURN_IF_ERROR(table->with_columns([&](std::span<const ps::DenseColumn> own) {
      for (const ps::DenseColumn& column : own)
        columns.push_back({std::string(column.name), column.is_scalar,
                           static_cast<int64_t>(column.values.size())});
      return Ok();
    }));
  }
  return tables;
}

StatusOr<std::vector<ps::TypedTable>> described_sparse_tables(
    const std::string& description, const std::vector<std::string>& endpoints) {
  MILLRACE_ASSIGN_OR_RETURN(const desc::DownpourServerParameter server,
                            server_description(description));
  std::vector<ps::TypedTable> tables;
  for (const desc::TableParameter& from : server.downpour_table_param()) {
    if (from.type() != desc::PS_SPARSE_TABLE) continue;
    ps::TypedTable table;
    MILLRACE_ASSIGN_OR_RETURN(table.options, sparse_options(from));
    table.param = from.common().table_name();
    table.height = from.common().table_num();
    table.shard_num = static_cast<int64_t>(from.shard_num());
    table.endpoints = endpoints;
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace millrace::fleet
