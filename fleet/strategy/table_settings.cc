#include "fleet/strategy/table_settings.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "framework/base/errors.h"
#include "proto/fleet_desc.pb.h"

namespace millrace::fleet {
namespace {

namespace desc = fleet_desc;

constexpr std::string_view kKeys[] = {"sparse_table_class",
                                      "sparse_compress_in_save",
                                      "sparse_shard_num",
                                      "sparse_accessor_class",
                                      "sparse_learning_rate",
                                      "sparse_initial_g2sum",
                                      "sparse_initial_range",
                                      "sparse_weight_bounds",
                                      "sparse_fea_dim",
                                      "sparse_embedx_dim",
                                      "sparse_embedx_threshold",
                                      "sparse_nonclk_coeff",
                                      "sparse_click_coeff",
                                      "sparse_base_threshold",
                                      "sparse_delta_threshold",
                                      "sparse_delta_keep_days",
                                      "sparse_delete_after_unseen_days",
                                      "sparse_show_click_decay_rate",
                                      "sparse_delete_threshold",
                                      "sparse_converter",
                                      "sparse_deconverter",
                                      "sparse_enable_cache",
                                      "sparse_cache_rate",
                                      "sparse_cache_file_num",
                                      "sparse_beta1_decay_rate",
                                      "sparse_beta2_decay_rate",
                                      "sparse_ada_epsilon",
                                      "sparse_optimizer",
                                      "sparse_ssd_unseenday_threshold",
                                      "embed_sparse_optimizer",
                                      "embed_sparse_learning_rate",
                                      "embed_sparse_weight_bounds",
                                      "embed_sparse_initial_range",
                                      "embed_sparse_initial_g2sum",
                                      "embed_sparse_beta1_decay_rate",
                                      "embed_sparse_beta2_decay_rate",
                                      "embedx_sparse_optimizer",
                                      "embedx_sparse_learning_rate",
                                      "embedx_sparse_weight_bounds",
                                      "embedx_sparse_initial_range",
                                      "embedx_sparse_initial_g2sum",
                                      "embedx_sparse_beta1_decay_rate",
                                      "embedx_sparse_beta2_decay_rate",
                                      "feature_learning_rate",
                                      "nodeid_slot",
                                      "sparse_load_filter_slots",
                                      "sparse_save_filter_slots"};

// The accessor's class in descriptions, and whether both parts of a row have one rule's settings.
struct AccessorName {
  std::string_view key;
  const char* name;
  bool one_rule;
};
constexpr AccessorName kAccessors[] = {{"DownpourSparseValueAccessor", "CtrCommonAccessor", false},
                                       {"DownpourCtrAccessor", "CtrCommonAccessor", true},
                                       {"DownpourCtrDoubleAccessor", "CtrDoubleAccessor", true},
                                       {"DownpourUnitAccessor", "CtrCommonAccessor", false},
                                       {"DownpourDoubleUnitAccessor", "CtrDoubleAccessor", false},
                                       {"DownpourCtrDymfAccessor", "CtrDymfAccessor", false}};

constexpr const char* kTableClasses[][2] = {{"DownpourSparseTable", "MemorySparseTable"},
                                            {"DownpourSparseSSDTable", "SSDSparseTable"}};

// Rules by their names in configurations; kinds share settings.
enum class RuleKind { kNaive, kAdagrad, kAdam };
struct RuleName {
  std::string_view key;
  const char* name;
  RuleKind kind;
};
constexpr RuleName kRules[] = {{"naive", "SparseNaiveSGDRule", RuleKind::kNaive},
                               {"adagrad", "SparseAdaGradSGDRule", RuleKind::kAdagrad},
                               {"adagrad_v2", "SparseAdaGradV2SGDRule", RuleKind::kAdagrad},
                               {"std_adagrad", "StdAdaGradSGDRule", RuleKind::kAdagrad},
                               {"adam", "SparseAdamSGDRule", RuleKind::kAdam},
                               {"shared_adam", "SparseSharedAdamSGDRule", RuleKind::kAdam}};

template <typename Row, size_t n>
std::string names_of(const Row (&rows)[n]) {
  std::string names;
  for (const Row& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.key);
  return names;
}

template <typename Row, size_t n>
StatusOr<const Row*> find_row(const Row (&rows)[n], const std::string& key, const std::string& name,
                              const std::string& what) {
  for (const Row& row : rows) {
    if (row.key == name) return &row;
  }
  return InvalidArgument("{}.{}: expected one of {}, found '{}'", what, key, names_of(rows), name);
}

// Weights stay within bounds, which are two numbers.
template <typename Rule>
Status set_bounds(ConfigReader& read, const std::string& key, const std::string& what, Rule& rule) {
  const std::vector<double> bounds = read.numbers(key, {-10, 10});
  if (bounds.size() != 2)
    return InvalidArgument("{}.{}: expected two numbers, found {}", what, key, bounds.size());
  for (const double bound : bounds) rule.add_weight_bounds(static_cast<float>(bound));
  return Ok();
}

Status set_rule(ConfigReader& read, const std::string& prefix, const std::string& what,
                desc::SparseCommonSGDRuleParameter& out) {
  const std::string key = prefix + "sparse_optimizer";
  MILLRACE_ASSIGN_OR_RETURN(const RuleName* const rule,
                            find_row(kRules, key, read.text(key, "adagrad"), what));
  const auto number = [&](const char* name, double fallback) {
    return read.number(prefix + name, fallback);
  };
  const std::string bounds = prefix + "sparse_weight_bounds";
  out.set_name(rule->name);
  switch (rule->kind) {
    case RuleKind::kNaive:
      out.mutable_naive()->set_learning_rate(number("sparse_learning_rate", 0.05));
      out.mutable_naive()->set_initial_range(number("sparse_initial_range", 1e-4));
      return set_bounds(read, bounds, what, *out.mutable_naive());
    case RuleKind::kAdagrad:
      out.mutable_adagrad()->set_learning_rate(number("sparse_learning_rate", 0.05));
      // the first weight of a row begins at 0, whatever the settings say
      out.mutable_adagrad()->set_initial_range(
          prefix == "embed_" ? 0 : number("sparse_initial_range", 1e-4));
      out.mutable_adagrad()->set_initial_g2sum(number("sparse_initial_g2sum", 3));
      return set_bounds(read, bounds, what, *out.mutable_adagrad());
    case RuleKind::kAdam:
      out.mutable_adam()->set_learning_rate(number("sparse_learning_rate", 0.001));
      out.mutable_adam()->set_initial_range(number("sparse_initial_range", 1e-4));
      out.mutable_adam()->set_beta1_decay_rate(number("sparse_beta1_decay_rate", 0.9));
      out.mutable_adam()->set_beta2_decay_rate(number("sparse_beta2_decay_rate", 0.999));
      out.mutable_adam()->set_ada_epsilon(number("sparse_ada_epsilon", 1e-8));
      return set_bounds(read, bounds, what, *out.mutable_adam());
  }
  return Internal("a rule without a kind");
}

void set_statistics(ConfigReader& read, bool unit, desc::CtrAccessorParameter& out) {
  const auto number = [&](const char* key, double fallback) {
    return static_cast<float>(read.number(key, fallback));
  };
  out.set_show_scale(!unit);
  out.set_nonclk_coeff(number("sparse_nonclk_coeff", 0.1));
  out.set_click_coeff(number("sparse_click_coeff", 1));
  out.set_base_threshold(number("sparse_base_threshold", 1.5));
  out.set_delta_threshold(number("sparse_delta_threshold", 0.25));
  out.set_delta_keep_days(number("sparse_delta_keep_days", 16));
  out.set_show_click_decay_rate(number("sparse_show_click_decay_rate", 0.98));
  out.set_delete_threshold(number("sparse_delete_threshold", 0.8));
  out.set_delete_after_unseen_days(number("sparse_delete_after_unseen_days", 30));
  out.set_ssd_unseenday_threshold(
      static_cast<int32_t>(read.integer("sparse_ssd_unseenday_threshold", 1)));
  for (const double slot : read.numbers("sparse_load_filter_slots", {}))
    out.add_load_filter_slots(static_cast<float>(slot));
  for (const double slot : read.numbers("sparse_save_filter_slots", {}))
    out.add_save_filter_slots(static_cast<float>(slot));
}

Status set_accessor(ConfigReader& read, const AccessorName& accessor, bool use_cvm,
                    const std::string& what, desc::TableAccessorParameter& out) {
  out.set_accessor_class(use_cvm ? accessor.name : "SparseAccessor");
  out.set_embedx_dim(read.count("sparse_embedx_dim", 8));
  out.set_fea_dim(out.embedx_dim() + 3);
  out.set_embedx_threshold(read.count("sparse_embedx_threshold", 10));
  set_statistics(read, accessor.key == "DownpourUnitAccessor", *out.mutable_ctr_accessor_param());
  for (const uint32_t param : {1, 2}) {
    desc::TableAccessorSaveParameter& save = *out.add_table_accessor_save_param();
    save.set_param(param);
    save.set_converter(read.text("sparse_converter", ""));
    save.set_deconverter(read.text("sparse_deconverter", ""));
  }
  MILLRACE_RETURN_IF_ERROR(
      set_rule(read, accessor.one_rule ? "" : "embed_", what, *out.mutable_embed_sgd_param()));
  MILLRACE_RETURN_IF_ERROR(
      set_rule(read, accessor.one_rule ? "" : "embedx_", what, *out.mutable_embedx_sgd_param()));
  out.mutable_graph_sgd_param()->set_feature_learning_rate(
      static_cast<float>(read.number("feature_learning_rate", 0.05)));
  out.mutable_graph_sgd_param()->set_nodeid_slot(read.count("nodeid_slot", 9008));
  return Ok();
}

StatusOr<const char*> table_class(ConfigReader& read, const std::string& what) {
  const std::string name = read.text("sparse_table_class", kTableClasses[0][0]);
  for (const auto& [key, value] : kTableClasses) {
    if (name == key) return value;
  }
  return InvalidArgument("{}.sparse_table_class: expected {} or {}, found '{}'", what,
                         kTableClasses[0][0], kTableClasses[1][0], name);
}

}  // namespace

Status apply_table_settings(const std::string& table, const ConfigDict& configs, bool use_cvm,
                            desc::TableParameter& out) {
  const std::string what = "fleet_desc_configs['" + table + "']";
  MILLRACE_RETURN_IF_ERROR(check_keys(configs, {std::begin(kKeys), std::end(kKeys)}, what));
  ConfigReader read(configs, what);
  MILLRACE_ASSIGN_OR_RETURN(const char* const name, table_class(read, what));
  out.set_table_class(name);
  out.set_shard_num(read.count("sparse_shard_num", 1000));
  out.set_enable_sparse_table_cache(read.boolean("sparse_enable_cache", true));
  out.set_sparse_table_cache_rate(read.number("sparse_cache_rate", 0.00055));
  out.set_sparse_table_cache_file_num(read.count("sparse_cache_file_num", 16));
  MILLRACE_ASSIGN_OR_RETURN(
      const AccessorName* const accessor,
      find_row(kAccessors, "sparse_accessor_class",
               read.text("sparse_accessor_class", "DownpourCtrAccessor"), what));
  MILLRACE_RETURN_IF_ERROR(set_accessor(read, *accessor, use_cvm, what, *out.mutable_accessor()));
  return read.status();
}

Status check_table_settings(const std::string& table, const ConfigDict& configs) {
  desc::TableParameter scratch;
  return apply_table_settings(table, configs, true, scratch);
}

}  // namespace millrace::fleet
