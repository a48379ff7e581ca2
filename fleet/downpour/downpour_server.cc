#include "fleet/downpour/downpour_server.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>

#include <fmt/ranges.h>

#include "fleet/downpour/sparse_configs.h"
#include "framework/base/errors.h"
#include "proto/pslib_desc.pb.h"

namespace millrace::fleet {
namespace {

namespace desc = pslib_desc;

constexpr std::string_view kDenseKeys[] = {
    "dense_table_class",   "dense_compress_in_save", "dense_accessor_class", "dense_optimizer",
    "dense_learning_rate", "dense_avg_decay",        "dense_ada_decay",      "dense_ada_epsilon",
    "dense_mom_decay",     "dense_naive_lr"};
constexpr std::string_view kDataNormKeys[] = {"datanorm_table_class", "datanorm_compress_in_save",
                                              "datanorm_accessor_class", "datanorm_operation",
                                              "datanorm_decay_rate"};

StatusOr<uint32_t> count_elements(const std::vector<DenseVar>& params,
                                  const std::vector<std::string>& embeddings) {
  int64_t sum = 0;
  for (const DenseVar& var : params) {
    if (std::find(embeddings.begin(), embeddings.end(), var.name) == embeddings.end())
      sum += var.elements;
  }
  if (sum > std::numeric_limits<uint32_t>::max())
    return InvalidArgument("a dense table has {} values, expected at most 2^32 - 1", sum);
  return static_cast<uint32_t>(sum);
}

// The table of that id; null if there is none. Errors: kInvalidArgument if it has another type.
StatusOr<desc::TableParameter*> find_table(desc::ServerParameter& server, int id,
                                           desc::TableType type) {
  for (desc::TableParameter& table :
       *server.mutable_downpour_server_param()->mutable_downpour_table_param()) {
    if (table.table_id() != static_cast<uint64_t>(id)) continue;
    if (table.type() == type) return &table;
    return InvalidArgument("table {} is of type {}, expected {}", id,
                           desc::TableType_Name(table.type()), desc::TableType_Name(type));
  }
  return nullptr;
}

desc::TableParameter& add_table(desc::ServerParameter& server, int id, desc::TableType type) {
  desc::TableParameter& table = *server.mutable_downpour_server_param()->add_downpour_table_param();
  table.set_table_id(static_cast<uint64_t>(id));
  table.set_type(type);
  return table;
}

void set_service(desc::ServerServiceParameter& service) {
  service.set_server_class("DownpourBrpcPsServer");
  service.set_client_class("DownpourBrpcPsClient");
  service.set_service_class("DownpourPsService");
  service.set_start_server_port(0);
  service.set_server_thread_num(12);
}

void set_dense(ConfigReader& read, desc::TableParameter& table) {
  table.set_table_class(read.text("dense_table_class", "DownpourDenseTable"));
  table.set_compress_in_save(read.boolean("dense_compress_in_save", true));
  desc::TableAccessorParameter& accessor = *table.mutable_accessor();
  accessor.set_accessor_class(read.text("dense_accessor_class", "DownpourDenseValueAccessor"));
  desc::DenseSGDRuleParameter& rule = *accessor.mutable_dense_sgd_param();
  rule.set_name(read.text("dense_optimizer", "adam"));
  rule.mutable_adam()->set_learning_rate(read.number("dense_learning_rate", 5e-06));
  rule.mutable_adam()->set_avg_decay_rate(read.number("dense_avg_decay", 0.999993));
  rule.mutable_adam()->set_ada_decay_rate(read.number("dense_ada_decay", 0.9999));
  rule.mutable_adam()->set_ada_epsilon(read.number("dense_ada_epsilon", 1e-8));
  rule.mutable_adam()->set_mom_decay_rate(read.number("dense_mom_decay", 0.99));
  rule.mutable_naive()->set_learning_rate(read.number("dense_naive_lr", 0.0002));
}

void set_data_norm(ConfigReader& read, desc::TableParameter& table) {
  table.set_table_class(read.text("datanorm_table_class", "DownpourDenseTable"));
  table.set_compress_in_save(read.boolean("datanorm_compress_in_save", true));
  desc::TableAccessorParameter& accessor = *table.mutable_accessor();
  accessor.set_accessor_class(read.text("datanorm_accessor_class", "DownpourDenseValueAccessor"));
  desc::DenseSGDRuleParameter& rule = *accessor.mutable_dense_sgd_param();
  rule.set_name(read.text("datanorm_operation", "summary"));
  rule.mutable_summary()->set_summary_decay_rate(read.number("datanorm_decay_rate", 0.999999));
}

// A kind of dense table: names of its settings, the function that writes them, and the rules that
// descriptions support.
struct DenseKind {
  const char* what;
  std::span<const std::string_view> keys;
  void (*set)(ConfigReader& read, desc::TableParameter& table);
  const char* rule_key;
  std::span<const std::string_view> rules;
};
constexpr std::string_view kDenseRules[] = {"adam", "naive"};
constexpr std::string_view kDataNormRules[] = {"summary"};
constexpr DenseKind kDenseTable = {"strategy of dense tables", kDenseKeys, set_dense,
                                   "dense_optimizer", kDenseRules};
constexpr DenseKind kDataNormTable = {"strategy of data_norm tables", kDataNormKeys, set_data_norm,
                                      "datanorm_operation", kDataNormRules};

Status check_rule(const std::string& rule, const DenseKind& kind) {
  if (std::ranges::find(kind.rules, rule) != kind.rules.end()) return Ok();
  return Unimplemented("{}.{}: expected {}, found '{}'", kind.what, kind.rule_key,
                       fmt::join(kind.rules, " or "), rule);
}

// Adds remarks for settings of rules that the table does not use.
void remark_other_rule(const ConfigDict& configs, const std::string& rule, const DenseKind& kind,
                       std::vector<std::string>& remarks) {
  for (const char* const key : {"dense_learning_rate", "dense_avg_decay", "dense_ada_decay",
                                "dense_ada_epsilon", "dense_mom_decay", "dense_naive_lr"}) {
    const bool is_naive = std::string_view(key) == "dense_naive_lr";
    if (configs.count(key) != 0 && is_naive != (rule == "naive"))
      remarks.push_back(fmt::format("{}.{} has no effect on the rule '{}'", kind.what, key, rule));
  }
}

struct DenseTable {
  int id;
  const std::vector<DenseVar>& params;
  const std::vector<std::string>& embeddings;  // not counted
  const ConfigDict& configs;
};

// A table that is in the user's description keeps its settings.
Status add_dense(desc::ServerParameter& server, const DenseTable& wanted, const DenseKind& kind,
                 std::vector<std::string>& remarks) {
  MILLRACE_ASSIGN_OR_RETURN(const uint32_t elements,
                            count_elements(wanted.params, wanted.embeddings));
  MILLRACE_ASSIGN_OR_RETURN(desc::TableParameter * table,
                            find_table(server, wanted.id, desc::PS_DENSE_TABLE));
  if (table == nullptr) {
    MILLRACE_RETURN_IF_ERROR(
        check_keys(wanted.configs, {kind.keys.begin(), kind.keys.end()}, kind.what));
    ConfigReader read(wanted.configs, kind.what);
    desc::TableParameter settings;
    kind.set(read, settings);
    MILLRACE_RETURN_IF_ERROR(read.status());
    const std::string& rule = settings.accessor().dense_sgd_param().name();
    MILLRACE_RETURN_IF_ERROR(check_rule(rule, kind));
    remark_other_rule(wanted.configs, rule, kind, remarks);
    table = &add_table(server, wanted.id, desc::PS_DENSE_TABLE);
    table->MergeFrom(settings);
  }
  table->mutable_accessor()->set_fea_dim(elements);
  return Ok();
}

}  // namespace

ConfigDict early_sparse_configs(double learning_rate) {
  return {{"sparse_accessor_class", "DownpourFeatureValueAccessor"},
          {"sparse_learning_rate", learning_rate},
          {"sparse_embedx_threshold", int64_t{5}},
          {"sparse_click_coeff", 2.0},
          {"sparse_base_threshold", 0.2},
          {"sparse_delta_threshold", 0.15},
          {"sparse_delta_keep_days", 31.0},
          {"sparse_show_click_decay_rate", 0.999}};
}

ConfigDict early_dense_configs(double learning_rate) {
  return {{"dense_learning_rate", learning_rate}};
}

DownpourServer::DownpourServer(const desc::ServerParameter* start)
    : desc_(start != nullptr ? std::make_unique<desc::ServerParameter>(*start)
                             : std::make_unique<desc::ServerParameter>()) {
  desc::DownpourServerParameter& server = *desc_->mutable_downpour_server_param();
  if (!server.has_service_param()) set_service(*server.mutable_service_param());
}

DownpourServer::DownpourServer(DownpourServer&&) noexcept = default;
DownpourServer::~DownpourServer() = default;

Status DownpourServer::add_sparse_table(int table_id, const ConfigDict& configs) {
  MILLRACE_ASSIGN_OR_RETURN(const desc::TableParameter* const found,
                            find_table(*desc_, table_id, desc::PS_SPARSE_TABLE));
  if (found != nullptr) return Ok();
  desc::TableParameter table;
  MILLRACE_RETURN_IF_ERROR(set_sparse_configs(configs, table, remarks_));
  add_table(*desc_, table_id, desc::PS_SPARSE_TABLE).MergeFrom(table);
  return Ok();
}

Status DownpourServer::add_dense_table(int table_id, const std::vector<DenseVar>& params,
                                       const std::vector<std::string>& embeddings,
                                       const ConfigDict& configs) {
  return add_dense(*desc_, {table_id, params, embeddings, configs}, kDenseTable, remarks_);
}

Status DownpourServer::add_data_norm_table(int table_id, const std::vector<DenseVar>& params,
                                           const std::vector<std::string>& embeddings,
                                           const ConfigDict& configs) {
  return add_dense(*desc_, {table_id, params, embeddings, configs}, kDataNormTable, remarks_);
}

}  // namespace millrace::fleet
