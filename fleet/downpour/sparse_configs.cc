#include "fleet/downpour/sparse_configs.h"

#include <iterator>
#include <string_view>

#include "framework/base/errors.h"
#include "proto/pslib_desc.pb.h"

namespace millrace::fleet {
namespace {

namespace desc = pslib_desc;

constexpr const char* kWhat = "strategy of sparse tables";

constexpr std::string_view kKeys[] = {"sparse_table_class",
                                      "sparse_compress_in_save",
                                      "sparse_shard_num",
                                      "sparse_accessor_class",
                                      "sparse_learning_rate",
                                      "sparse_initial_g2sum",
                                      "sparse_initial_range",
                                      "sparse_weight_bounds",
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
                                      "embedx_sparse_beta2_decay_rate"};

// How an accessor's rows are updated.
enum class Updates { kOneRule, kValue, kTwoRules };
struct AccessorKind {
  std::string_view name;
  Updates updates;
};
constexpr AccessorKind kAccessors[] = {{"DownpourFeatureValueAccessor", Updates::kOneRule},
                                       {"DownpourCtrAccessor", Updates::kOneRule},
                                       {"DownpourCtrDoubleAccessor", Updates::kOneRule},
                                       {"DownpourSparseValueAccessor", Updates::kValue},
                                       {"DownpourUnitAccessor", Updates::kTwoRules},
                                       {"DownpourDoubleUnitAccessor", Updates::kTwoRules},
                                       {"DownpourCtrDymfAccessor", Updates::kTwoRules}};

StatusOr<const AccessorKind*> find_accessor(const std::string& name) {
  std::string known;
  for (const AccessorKind& kind : kAccessors) {
    if (kind.name == name) return &kind;
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  return InvalidArgument("{}.sparse_accessor_class: expected one of {}, found '{}'", kWhat, known,
                         name);
}

template <typename Rule>
void set_bounds(ConfigReader& read, const std::string& key, Rule& rule) {
  for (const double bound : read.numbers(key, {-10, 10}))
    rule.add_weight_bounds(static_cast<float>(bound));
}

// \param first  the first weight of a row, which adagrad begins at 0
void set_rule(ConfigReader& read, const std::string& prefix, const char* usual,
              desc::SparseCommonSGDRuleParameter& out) {
  const bool first = prefix == "embed_";
  const std::string name = read.text(prefix + "sparse_optimizer", usual);
  const auto number = [&](const char* key, double fallback) {
    return read.number(prefix + key, fallback);
  };
  const std::string bounds = prefix + "sparse_weight_bounds";
  out.set_name(name);
  if (name == "naive") {
    out.mutable_naive()->set_learning_rate(number("sparse_learning_rate", 0.05));
    out.mutable_naive()->set_initial_range(number("sparse_initial_range", 1e-4));
    set_bounds(read, bounds, *out.mutable_naive());
  } else if (name == "adagrad" || name == "std_adagrad") {
    out.mutable_adagrad()->set_learning_rate(number("sparse_learning_rate", 0.05));
    out.mutable_adagrad()->set_initial_range(first ? 0 : number("sparse_initial_range", 1e-4));
    out.mutable_adagrad()->set_initial_g2sum(number("sparse_initial_g2sum", 3));
    set_bounds(read, bounds, *out.mutable_adagrad());
  } else if (name == "adam") {
    out.mutable_adam()->set_learning_rate(number("sparse_learning_rate", 0.001));
    out.mutable_adam()->set_initial_range(number("sparse_initial_range", 1e-4));
    out.mutable_adam()->set_beta1_decay_rate(number("sparse_beta1_decay_rate", 0.9));
    out.mutable_adam()->set_beta2_decay_rate(number("sparse_beta2_decay_rate", 0.999));
    out.mutable_adam()->set_ada_epsilon(number("sparse_ada_epsilon", 1e-8));
    set_bounds(read, bounds, *out.mutable_adam());
  }
}

void set_statistics(ConfigReader& read, bool with_disk, desc::TableAccessorParameter& out) {
  const auto number = [&](const char* key, double fallback) {
    return static_cast<float>(read.number(key, fallback));
  };
  out.set_embedx_threshold(read.count("sparse_embedx_threshold", 10));
  desc::DownpourTableAccessorParameter& stats = *out.mutable_downpour_accessor_param();
  stats.set_nonclk_coeff(number("sparse_nonclk_coeff", 0.1));
  stats.set_click_coeff(number("sparse_click_coeff", 1));
  stats.set_base_threshold(number("sparse_base_threshold", 1.5));
  stats.set_delta_threshold(number("sparse_delta_threshold", 0.25));
  stats.set_delta_keep_days(number("sparse_delta_keep_days", 16));
  stats.set_delete_after_unseen_days(number("sparse_delete_after_unseen_days", 30));
  stats.set_show_click_decay_rate(number("sparse_show_click_decay_rate", 0.98));
  stats.set_delete_threshold(number("sparse_delete_threshold", 0.8));
  if (with_disk) {
    stats.set_ssd_unseenday_threshold(
        static_cast<int32_t>(read.integer("sparse_ssd_unseenday_threshold", 1)));
  }
}

// The rule of the accessors that have one for whole rows.
void set_row_rule(ConfigReader& read, desc::SparseSGDRuleParameter& out) {
  out.set_learning_rate(read.number("sparse_learning_rate", 0.05));
  out.set_initial_g2sum(read.number("sparse_initial_g2sum", 3));
  out.set_initial_range(read.number("sparse_initial_range", 1e-4));
  set_bounds(read, "sparse_weight_bounds", out);
}

// Commands of the original around saved rows. They are told, never run.
void set_converters(ConfigReader& read, desc::TableAccessorParameter& out) {
  for (const uint32_t param : {1, 2}) {
    desc::TableAccessorSaveParameter& save = *out.add_table_accessor_save_param();
    save.set_param(param);
    save.set_converter(
        read.text("sparse_converter", "(scripts/xbox_compressor_mf.py | bin/xbox_pb_converter)"));
    save.set_deconverter(read.text("sparse_deconverter",
                                   "(bin/xbox_pb_deconverter | scripts/xbox_decompressor_mf.awk)"));
  }
}

void set_accessor(ConfigReader& read, const AccessorKind& kind, desc::TableAccessorParameter& out) {
  out.set_accessor_class(std::string(kind.name));
  out.set_embedx_dim(read.count("sparse_embedx_dim", 8));
  const bool plain = kind.updates == Updates::kValue;
  out.set_fea_dim(out.embedx_dim() + (plain ? 0 : 3));
  if (kind.updates == Updates::kOneRule) set_row_rule(read, *out.mutable_sparse_sgd_param());
  if (plain) {
    set_rule(read, "", "adam", *out.mutable_sparse_commonsgd_param());
  } else {
    set_statistics(read, kind.updates == Updates::kOneRule, out);
  }
  if (kind.updates == Updates::kTwoRules) {
    set_rule(read, "embed_", "adagrad", *out.mutable_embed_sgd_param());
    set_rule(read, "embedx_", "adagrad", *out.mutable_embedx_sgd_param());
  }
  set_converters(read, out);
}

}  // namespace

Status set_sparse_configs(const ConfigDict& configs, desc::TableParameter& out) {
  MILLRACE_RETURN_IF_ERROR(check_keys(configs, {std::begin(kKeys), std::end(kKeys)}, kWhat));
  ConfigReader read(configs, kWhat);
  const std::string table_class = read.text("sparse_table_class", "DownpourSparseTable");
  if (table_class != "DownpourSparseTable" && table_class != "DownpourSparseSSDTable")
    return InvalidArgument(
        "{}.sparse_table_class: expected DownpourSparseTable or DownpourSparseSSDTable, found '{}'",
        kWhat, table_class);
  out.set_table_class(table_class);
  out.set_enable_sparse_table_cache(read.boolean("sparse_enable_cache", true));
  out.set_sparse_table_cache_rate(read.number("sparse_cache_rate", 0.00055));
  out.set_sparse_table_cache_file_num(read.count("sparse_cache_file_num", 16));
  out.set_compress_in_save(read.boolean("sparse_compress_in_save", true));
  out.set_shard_num(read.count("sparse_shard_num", 1000));
  MILLRACE_ASSIGN_OR_RETURN(
      const AccessorKind* const kind,
      find_accessor(read.text("sparse_accessor_class", "DownpourCtrAccessor")));
  set_accessor(read, *kind, *out.mutable_accessor());
  return read.status();
}

}  // namespace millrace::fleet
