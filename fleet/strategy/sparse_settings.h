#pragma once

#include <string>
#include <string_view>

#include "fleet/strategy/config_dict.h"
#include "framework/base/errors.h"

/// Shared by the descriptions of both generations of sparse tables: the names of their settings,
/// and functions that write them to messages, which have the same fields in both.
namespace millrace::fleet {

/// Keys that tables of both generations accept.
inline constexpr std::string_view kSparseKeys[] = {"sparse_table_class",
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

/// Groups of update rules with the same settings.
enum class SparseRule { kNaive, kAdagrad, kAdam };

/// Sets the bounds of weights, which are two numbers. Errors: kInvalidArgument.
template <typename Rule>
Status set_weight_bounds(ConfigReader& read, const std::string& key, const std::string& what,
                         Rule& rule) {
  const std::vector<double> bounds = read.numbers(key, {-10, 10});
  if (bounds.size() != 2)
    return InvalidArgument("{}.{}: expected two numbers, found {}", what, key, bounds.size());
  for (const double bound : bounds) rule.add_weight_bounds(static_cast<float>(bound));
  return Ok();
}

/// Sets the settings of an update rule, or their defaults.
/// \param prefix  of the keys: "embed_" is for the first weight of a row, whose initial value is 0
///                with adagrad
/// \param out     a SparseCommonSGDRuleParameter
template <typename Rules>
Status set_rule_settings(ConfigReader& read, const std::string& prefix, SparseRule rule,
                         const std::string& what, Rules& out) {
  const auto number = [&](const char* key, double fallback) {
    return read.number(prefix + key, fallback);
  };
  const std::string bounds = prefix + "sparse_weight_bounds";
  switch (rule) {
    case SparseRule::kNaive:
      out.mutable_naive()->set_learning_rate(number("sparse_learning_rate", 0.05));
      out.mutable_naive()->set_initial_range(number("sparse_initial_range", 1e-4));
      return set_weight_bounds(read, bounds, what, *out.mutable_naive());
    case SparseRule::kAdagrad:
      out.mutable_adagrad()->set_learning_rate(number("sparse_learning_rate", 0.05));
      out.mutable_adagrad()->set_initial_range(
          prefix == "embed_" ? 0 : number("sparse_initial_range", 1e-4));
      out.mutable_adagrad()->set_initial_g2sum(number("sparse_initial_g2sum", 3));
      return set_weight_bounds(read, bounds, what, *out.mutable_adagrad());
    case SparseRule::kAdam:
      out.mutable_adam()->set_learning_rate(number("sparse_learning_rate", 0.001));
      out.mutable_adam()->set_initial_range(number("sparse_initial_range", 1e-4));
      out.mutable_adam()->set_beta1_decay_rate(number("sparse_beta1_decay_rate", 0.9));
      out.mutable_adam()->set_beta2_decay_rate(number("sparse_beta2_decay_rate", 0.999));
      out.mutable_adam()->set_ada_epsilon(number("sparse_ada_epsilon", 1e-8));
      return set_weight_bounds(read, bounds, what, *out.mutable_adam());
  }
  return Internal("an update rule without settings");
}

/// Sets the statistics that determine which rows are saved and deleted, or the defaults.
template <typename Statistics>
void set_statistics(ConfigReader& read, Statistics& out) {
  const auto number = [&](const char* key, double fallback) {
    return static_cast<float>(read.number(key, fallback));
  };
  out.set_nonclk_coeff(number("sparse_nonclk_coeff", 0.1));
  out.set_click_coeff(number("sparse_click_coeff", 1));
  out.set_base_threshold(number("sparse_base_threshold", 1.5));
  out.set_delta_threshold(number("sparse_delta_threshold", 0.25));
  out.set_delta_keep_days(number("sparse_delta_keep_days", 16));
  out.set_show_click_decay_rate(number("sparse_show_click_decay_rate", 0.98));
  out.set_delete_threshold(number("sparse_delete_threshold", 0.8));
  out.set_delete_after_unseen_days(number("sparse_delete_after_unseen_days", 30));
}

/// Sets sharding and cache of a table, or the defaults.
template <typename Table>
void set_storage(ConfigReader& read, Table& out) {
  out.set_shard_num(read.count("sparse_shard_num", 1000));
  out.set_enable_sparse_table_cache(read.boolean("sparse_enable_cache", true));
  out.set_sparse_table_cache_rate(read.number("sparse_cache_rate", 0.00055));
  out.set_sparse_table_cache_file_num(read.count("sparse_cache_file_num", 16));
}

/// Sets the original's commands for converting saved rows. They are written to the description, but
/// never run.
template <typename Accessor>
void set_converters(ConfigReader& read, const char* converter, const char* deconverter,
                    Accessor& out) {
  for (const uint32_t param : {1, 2}) {
    auto& save = *out.add_table_accessor_save_param();
    save.set_param(param);
    save.set_converter(read.text("sparse_converter", converter));
    save.set_deconverter(read.text("sparse_deconverter", deconverter));
  }
}

}  // namespace millrace::fleet
