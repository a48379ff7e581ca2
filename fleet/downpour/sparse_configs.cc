#include "fleet/downpour/sparse_configs.h"

#include <iterator>
#include <string_view>
#include <utility>

#include "fleet/strategy/sparse_settings.h"
#include "framework/base/errors.h"
#include "proto/pslib_desc.pb.h"

namespace millrace::fleet {
namespace {

namespace desc = pslib_desc;

constexpr const char* kWhat = "strategy of sparse tables";

// How the rows of an accessor are updated.
enum class Updates { kOneRule, kValue, kTwoRules };
struct AccessorKind {
  std::string_view name;
  Updates updates;
};
constexpr AccessorKind kSparseConfigsAccessors[] = {
    {"DownpourFeatureValueAccessor", Updates::kOneRule},
    {"DownpourCtrAccessor", Updates::kOneRule},
    {"DownpourCtrDoubleAccessor", Updates::kOneRule},
    {"DownpourSparseValueAccessor", Updates::kValue},
    {"DownpourUnitAccessor", Updates::kTwoRules},
    {"DownpourDoubleUnitAccessor", Updates::kTwoRules},
    {"DownpourCtrDymfAccessor", Updates::kTwoRules}};

StatusOr<const AccessorKind*> find_accessor(const std::string& name) {
  std::string known;
  for (const AccessorKind& kind : kSparseConfigsAccessors) {
    if (kind.name == name) return &kind;
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  return InvalidArgument("{}.sparse_accessor_class: expected one of {}, found '{}'", kWhat, known,
                         name);
}

constexpr std::pair<std::string_view, SparseRule> kSparseConfigsRules[] = {
    {"naive", SparseRule::kNaive},
    {"adagrad", SparseRule::kAdagrad},
    {"std_adagrad", SparseRule::kAdagrad},
    {"adam", SparseRule::kAdam}};

Status set_rule(ConfigReader& read, const std::string& prefix, const char* usual,
                desc::SparseCommonSGDRuleParameter& out) {
  const std::string key = prefix + "sparse_optimizer";
  const std::string name = read.text(key, usual);
  for (const auto& [known, rule] : kSparseConfigsRules) {
    if (name != known) continue;
    out.set_name(name);
    return set_rule_settings(read, prefix, rule, kWhat, out);
  }
  return InvalidArgument("{}.{}: expected one of naive, adagrad, std_adagrad, adam, found '{}'",
                         kWhat, key, name);
}

// Sets the rule of accessors that have one rule for whole rows.
Status set_row_rule(ConfigReader& read, desc::SparseSGDRuleParameter& out) {
  out.set_learning_rate(read.number("sparse_learning_rate", 0.05));
  out.set_initial_g2sum(read.number("sparse_initial_g2sum", 3));
  out.set_initial_range(read.number("sparse_initial_range", 1e-4));
  return set_weight_bounds(read, "sparse_weight_bounds", kWhat, out);
}

Status set_accessor(ConfigReader& read, const AccessorKind& kind,
                    desc::TableAccessorParameter& out) {
  out.set_accessor_class(std::string(kind.name));
  out.set_embedx_dim(read.count("sparse_embedx_dim", 8));
  const bool plain = kind.updates == Updates::kValue;
  out.set_fea_dim(out.embedx_dim() + (plain ? 0 : 3));
  if (plain) {
    MILLRACE_RETURN_IF_ERROR(set_rule(read, "", "adam", *out.mutable_sparse_commonsgd_param()));
  } else {
    out.set_embedx_threshold(read.count("sparse_embedx_threshold", 10));
    set_statistics(read, *out.mutable_downpour_accessor_param());
  }
  if (kind.updates == Updates::kOneRule) {
    MILLRACE_RETURN_IF_ERROR(set_row_rule(read, *out.mutable_sparse_sgd_param()));
    out.mutable_downpour_accessor_param()->set_ssd_unseenday_threshold(
        read.small_integer("sparse_ssd_unseenday_threshold", 1));
  }
  if (kind.updates == Updates::kTwoRules) {
    MILLRACE_RETURN_IF_ERROR(set_rule(read, "embed_", "adagrad", *out.mutable_embed_sgd_param()));
    MILLRACE_RETURN_IF_ERROR(set_rule(read, "embedx_", "adagrad", *out.mutable_embedx_sgd_param()));
  }
  set_converters(read, "(scripts/xbox_compressor_mf.py | bin/xbox_pb_converter)",
                 "(bin/xbox_pb_deconverter | scripts/xbox_decompressor_mf.awk)", out);
  return Ok();
}

}  // namespace

Status set_sparse_configs(const ConfigDict& configs, desc::TableParameter& out,
                          std::vector<std::string>& remarks) {
  MILLRACE_RETURN_IF_ERROR(
      check_keys(configs, {std::begin(kSparseKeys), std::end(kSparseKeys)}, kWhat));
  ConfigReader read(configs, kWhat);
  const std::string table_class = read.text("sparse_table_class", "DownpourSparseTable");
  if (table_class != "DownpourSparseTable" && table_class != "DownpourSparseSSDTable")
    return InvalidArgument(
        "{}.sparse_table_class: expected DownpourSparseTable or DownpourSparseSSDTable, found '{}'",
        kWhat, table_class);
  out.set_table_class(table_class);
  set_storage(read, out);
  out.set_compress_in_save(read.boolean("sparse_compress_in_save", true));
  MILLRACE_ASSIGN_OR_RETURN(
      const AccessorKind* const kind,
      find_accessor(read.text("sparse_accessor_class", "DownpourCtrAccessor")));
  MILLRACE_RETURN_IF_ERROR(set_accessor(read, *kind, *out.mutable_accessor()));
  for (const std::string& key : read.unread())
    remarks.push_back(fmt::format("{}.{} has no effect: neither {} nor its rules read it", kWhat,
                                  key, kind->name));
  return read.status();
}

}  // namespace millrace::fleet
