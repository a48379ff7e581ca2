#include "fleet/strategy/table_settings.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "fleet/strategy/sparse_settings.h"
#include "framework/base/errors.h"
#include "proto/fleet_desc.pb.h"

namespace millrace::fleet {
namespace {

namespace desc = fleet_desc;

// Keys in addition to those of both generations.
constexpr std::string_view kMoreKeys[] = {"sparse_fea_dim", "feature_learning_rate", "nodeid_slot",
                                          "sparse_load_filter_slots", "sparse_save_filter_slots"};

// Settings that are written to the description, but have no effect on our servers.
constexpr std::string_view kOnlyDescribed[] = {
    "sparse_enable_cache",   "sparse_cache_rate",  "sparse_cache_file_num",
    "sparse_converter",      "sparse_deconverter", "sparse_ssd_unseenday_threshold",
    "feature_learning_rate", "nodeid_slot"};

// The accessor's class in descriptions, and whether both parts of a row use the settings of one
// rule.
struct AccessorName {
  std::string_view key;
  const char* name;
  bool one_rule;
};
constexpr AccessorName kTableSettingsAccessors[] = {
    {"DownpourSparseValueAccessor", "CtrCommonAccessor", false},
    {"DownpourCtrAccessor", "CtrCommonAccessor", true},
    {"DownpourCtrDoubleAccessor", "CtrDoubleAccessor", true},
    {"DownpourUnitAccessor", "CtrCommonAccessor", false},
    {"DownpourDoubleUnitAccessor", "CtrDoubleAccessor", false},
    {"DownpourCtrDymfAccessor", "CtrDymfAccessor", false}};

constexpr const char* kTableClasses[][2] = {{"DownpourSparseTable", "MemorySparseTable"},
                                            {"DownpourSparseSSDTable", "SSDSparseTable"}};

// Rules by their names in configurations.
struct RuleName {
  std::string_view key;
  const char* name;
  SparseRule kind;
};
constexpr RuleName kTableSettingsRules[] = {
    {"naive", "SparseNaiveSGDRule", SparseRule::kNaive},
    {"adagrad", "SparseAdaGradSGDRule", SparseRule::kAdagrad},
    {"adagrad_v2", "SparseAdaGradV2SGDRule", SparseRule::kAdagrad},
    {"std_adagrad", "StdAdaGradSGDRule", SparseRule::kAdagrad},
    {"adam", "SparseAdamSGDRule", SparseRule::kAdam},
    {"shared_adam", "SparseSharedAdamSGDRule", SparseRule::kAdam}};

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

Status set_rule(ConfigReader& read, const std::string& prefix, const std::string& what,
                desc::SparseCommonSGDRuleParameter& out) {
  const std::string key = prefix + "sparse_optimizer";
  MILLRACE_ASSIGN_OR_RETURN(const RuleName* const rule,
                            find_row(kTableSettingsRules, key, read.text(key, "adagrad"), what));
  out.set_name(rule->name);
  return set_rule_settings(read, prefix, rule->kind, what, out);
}

// The original leaves rows with a slot in these lists out of files. Our servers would write and
// read all rows.
Status refuse_filters(ConfigReader& read, const std::string& what) {
  for (const char* const key : {"sparse_load_filter_slots", "sparse_save_filter_slots"}) {
    if (!read.numbers(key, {}).empty())
      return Unimplemented("{}.{}: filtering of rows by slot in table files is not implemented",
                           what, key);
  }
  return Ok();
}

void set_ctr_statistics(ConfigReader& read, bool unit, desc::CtrAccessorParameter& out) {
  out.set_show_scale(!unit);
  set_statistics(read, out);
  out.set_ssd_unseenday_threshold(read.small_integer("sparse_ssd_unseenday_threshold", 1));
}

Status set_accessor(ConfigReader& read, const AccessorName& accessor, bool use_cvm,
                    const std::string& what, desc::TableAccessorParameter& out) {
  out.set_accessor_class(use_cvm ? accessor.name : "SparseAccessor");
  out.set_embedx_dim(read.count("sparse_embedx_dim", 8));
  out.set_fea_dim(out.embedx_dim() + 3);
  out.set_embedx_threshold(read.count("sparse_embedx_threshold", 10));
  set_ctr_statistics(read, accessor.key == "DownpourUnitAccessor",
                     *out.mutable_ctr_accessor_param());
  set_converters(read, "", "", out);
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
                            desc::TableParameter& out, std::vector<std::string>& remarks) {
  const std::string what = "fleet_desc_configs['" + table + "']";
  std::vector<std::string_view> keys(std::begin(kSparseKeys), std::end(kSparseKeys));
  keys.insert(keys.end(), std::begin(kMoreKeys), std::end(kMoreKeys));
  MILLRACE_RETURN_IF_ERROR(check_keys(configs, keys, what));
  ConfigReader read(configs, what);
  MILLRACE_ASSIGN_OR_RETURN(const char* const name, table_class(read, what));
  out.set_table_class(name);
  if (out.table_class() == "SSDSparseTable")
    remarks.push_back(what + ".sparse_table_class: rows are kept in memory, not on SSD");
  MILLRACE_RETURN_IF_ERROR(refuse_filters(read, what));
  set_storage(read, out);
  MILLRACE_ASSIGN_OR_RETURN(
      const AccessorName* const accessor,
      find_row(kTableSettingsAccessors, "sparse_accessor_class",
               read.text("sparse_accessor_class", "DownpourCtrAccessor"), what));
  MILLRACE_RETURN_IF_ERROR(set_accessor(read, *accessor, use_cvm, what, *out.mutable_accessor()));
  for (const std::string& key : read.unread())
    remarks.push_back(fmt::format("{}.{} has no effect: neither {} nor its rules read it", what,
                                  key, accessor->key));
  for (const std::string_view key : kOnlyDescribed) {
    if (read.has(std::string(key)))
      remarks.push_back(fmt::format("{}.{} has no effect except in ps_desc.txt", what, key));
  }
  return read.status();
}

Status check_table_settings(const std::string& table, const ConfigDict& configs) {
  desc::TableParameter scratch;
  std::vector<std::string> unsaid;
  return apply_table_settings(table, configs, /*use_cvm=*/true, scratch, unsaid);
}

}  // namespace millrace::fleet
