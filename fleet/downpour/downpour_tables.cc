#include "fleet/downpour/downpour_tables.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <google/protobuf/text_format.h>

#include "fleet/job/common_accessor.h"
#include "fleet/job/desc_text.h"
#include "framework/base/errors.h"
#include "proto/fleet_desc.pb.h"
#include "proto/pslib_desc.pb.h"

namespace millrace::fleet {

namespace downpour_tables {

namespace desc = pslib_desc;

// \param rules  a SparseNaiveSGDRuleParameter or one of its kin
template <typename Rule>
void put_rule(const Rule& rule, const std::string& prefix, ConfigDict& out) {
  out[prefix + "sparse_learning_rate"] = rule.learning_rate();
  out[prefix + "sparse_initial_range"] = rule.initial_range();
  // a description without bounds has none, unlike settings
  constexpr double kMost = std::numeric_limits<float>::max();
  std::vector<double> bounds(rule.weight_bounds().begin(), rule.weight_bounds().end());
  if (bounds.empty()) bounds = {-kMost, kMost};
  out[prefix + "sparse_weight_bounds"] = bounds;
}

void put_named_rule(const desc::SparseCommonSGDRuleParameter& rule, const std::string& prefix,
                    ConfigDict& out) {
  out[prefix + "sparse_optimizer"] = rule.name();
  if (rule.name() == "naive") return put_rule(rule.naive(), prefix, out);
  if (rule.name() == "adam") {
    out[prefix + "sparse_beta1_decay_rate"] = rule.adam().beta1_decay_rate();
    out[prefix + "sparse_beta2_decay_rate"] = rule.adam().beta2_decay_rate();
    return put_rule(rule.adam(), prefix, out);
  }
  out[prefix + "sparse_initial_g2sum"] = rule.adagrad().initial_g2sum();
  put_rule(rule.adagrad(), prefix, out);
}

// Settings of fleet jobs have the default decays of adam only.
Status check_adam(const desc::SparseCommonSGDRuleParameter& rule) {
  const desc::SparseAdamSGDParameter usual;
  if (rule.name() != "adam") return Ok();
  for (const auto& [name, wanted, found] :
       {std::tuple("beta1_decay_rate", usual.beta1_decay_rate(), rule.adam().beta1_decay_rate()),
        std::tuple("beta2_decay_rate", usual.beta2_decay_rate(), rule.adam().beta2_decay_rate()),
        std::tuple("ada_epsilon", usual.ada_epsilon(), rule.adam().ada_epsilon())}) {
    if (wanted != found)
      return Unimplemented("sparse table: {} {} of adam, expected {}", name, found, wanted);
  }
  return Ok();
}

void put_statistics(const desc::DownpourTableAccessorParameter& from, ConfigDict& out) {
  const std::pair<const char*, float> all[] = {
      {"sparse_nonclk_coeff", from.nonclk_coeff()},
      {"sparse_click_coeff", from.click_coeff()},
      {"sparse_base_threshold", from.base_threshold()},
      {"sparse_delta_threshold", from.delta_threshold()},
      {"sparse_delta_keep_days", from.delta_keep_days()},
      {"sparse_show_click_decay_rate", from.show_click_decay_rate()},
      {"sparse_delete_threshold", from.delete_threshold()},
      {"sparse_delete_after_unseen_days", from.delete_after_unseen_days()}};
  for (const auto& [key, value] : all) out[key] = static_cast<double>(value);
}

StatusOr<ConfigDict> sparse_settings(const desc::TableParameter& table) {
  const desc::TableAccessorParameter& accessor = table.accessor();
  const std::string& name = accessor.accessor_class();
  if (accessor.fea_dim() != accessor.embedx_dim() + 3)
    return InvalidArgument("sparse table {}: expected fea_dim {} for embedx_dim {}, found {}",
                           table.table_id(), accessor.embedx_dim() + 3, accessor.embedx_dim(),
                           accessor.fea_dim());
  ConfigDict out{{"sparse_table_class", table.table_class()},
                 {"sparse_shard_num", static_cast<int64_t>(table.shard_num())},
                 {"sparse_embedx_dim", static_cast<int64_t>(accessor.embedx_dim())},
                 {"sparse_embedx_threshold", static_cast<int64_t>(accessor.embedx_threshold())}};
  put_statistics(accessor.downpour_accessor_param(), out);
  if (name == "DownpourUnitAccessor") {
    out["sparse_accessor_class"] = name;
    MILLRACE_RETURN_IF_ERROR(check_adam(accessor.embed_sgd_param()));
    MILLRACE_RETURN_IF_ERROR(check_adam(accessor.embedx_sgd_param()));
    put_named_rule(accessor.embed_sgd_param(), "embed_", out);
    put_named_rule(accessor.embedx_sgd_param(), "embedx_", out);
    return out;
  }
  if (name != "DownpourCtrAccessor" && name != "DownpourFeatureValueAccessor")
    return Unimplemented(
        "sparse table {}: the accessor '{}', expected DownpourCtrAccessor, "
        "DownpourFeatureValueAccessor or DownpourUnitAccessor",
        table.table_id(), name);
  out["sparse_accessor_class"] = std::string("DownpourCtrAccessor");
  out["sparse_optimizer"] = std::string("adagrad");
  out["sparse_initial_g2sum"] = accessor.sparse_sgd_param().initial_g2sum();
  put_rule(accessor.sparse_sgd_param(), "", out);
  return out;
}

Status set_dense_rule(const desc::TableParameter& table, DownpourTables& out) {
  const desc::DenseSGDRuleParameter& rule = table.accessor().dense_sgd_param();
  if (rule.name() == "naive") {
    out.updates.method = Sgd{};
    out.updates.learning_rate = rule.naive().learning_rate();
    return Ok();
  }
  if (rule.name() != "adam")
    return Unimplemented("dense table {}: the rule '{}', expected adam or naive", table.table_id(),
                         rule.name());
  const double usual = desc::AdamSGDParameter().avg_decay_rate();
  if (rule.adam().avg_decay_rate() != usual)
    return Unimplemented("dense table {}: averages that decay by {}, expected avg_decay_rate {}",
                         table.table_id(), rule.adam().avg_decay_rate(), usual);
  out.updates.method = Adam{};
  out.updates.learning_rate = rule.adam().learning_rate();
  out.adam_d2sum = true;
  out.momentum = rule.adam().mom_decay_rate();
  out.decay = rule.adam().ada_decay_rate();
  out.epsilon = rule.adam().ada_epsilon();
  return Ok();
}

Status check_worker(const desc::DownpourTrainerParameter& worker) {
  for (const auto& [name, steps] :
       {std::pair("push_sparse_per_batch",
                  worker.has_push_sparse_per_batch() ? worker.push_sparse_per_batch() : 1),
        {"push_dense_per_batch",
         worker.has_push_dense_per_batch() ? worker.push_dense_per_batch() : 1}}) {
    if (steps != 1)
      return Unimplemented("{} (window) {}: workers push after every batch, expected 1", name,
                           steps);
  }
  for (const std::string& type : worker.skip_op()) {
    if (type != "lookup_table" && type != "lookup_table_grad" && type != "lookup_table_v2" &&
        type != "lookup_table_v2_grad")
      return Unimplemented(
          "skip_op '{}': workers leave out the lookups of the sparse table and their gradients "
          "only",
          type);
  }
  return Ok();
}

bool set_column(fleet_desc::CommonAccessorParameter& common, const std::string& name,
                double value) {
  const auto at = std::find(common.params().begin(), common.params().end(), name);
  if (at == common.params().end()) return false;
  common.set_initializers(static_cast<int>(at - common.params().begin()),
                          "fill_constant&" + python_number(static_cast<float>(value)));
  return true;
}

}  // namespace downpour_tables

StatusOr<DownpourTables> translate_tables(const std::string& description) {
  using namespace downpour_tables;
  desc::PSParameter all;
  MILLRACE_RETURN_IF_ERROR(parse_description(description, "fleet_desc", all));
  const auto& tables = all.server_param().downpour_server_param().downpour_table_param();
  constexpr int kUsed = 2;
  if (tables.size() != kUsed)
    return Unimplemented("the description has {} tables, but the program uses {}", tables.size(),
                         kUsed);
  DownpourTables out;
  for (const desc::TableParameter& table : tables) {
    if (table.table_id() >= uint64_t{kUsed})
      return Unimplemented("table {} of the description, which the program does not use",
                           table.table_id());
    if (table.table_id() == 0) {
      MILLRACE_ASSIGN_OR_RETURN(out.sparse, sparse_settings(table));
      out.scales_by_show = table.accessor().accessor_class() != "DownpourUnitAccessor";
    } else {
      MILLRACE_RETURN_IF_ERROR(set_dense_rule(table, out));
    }
  }
  MILLRACE_RETURN_IF_ERROR(check_worker(all.trainer_param(0)));
  return out;
}

StatusOr<std::string> with_decays(const DownpourTables& tables, const std::string& ps_desc) {
  using namespace downpour_tables;
  if (!tables.adam_d2sum) return ps_desc;
  fleet_desc::PSParameter all;
  MILLRACE_RETURN_IF_ERROR(parse_description(ps_desc, "ps_desc", all));
  const auto set = [&](auto& described) {
    bool found = true;
    for (fleet_desc::TableParameter& table : described) {
      if (table.common().name() != "adam_d2sum") continue;
      fleet_desc::CommonAccessorParameter& common = *table.mutable_common();
      found = set_column(common, "MomentDecayRate", tables.momentum) &&
              set_column(common, "AdaDecayRate", tables.decay) &&
              set_column(common, "AdaEpsilon", tables.epsilon) && found;
    }
    return found;
  };
  bool found = true;
  if (all.has_server_param())
    found = set(*all.mutable_server_param()
                     ->mutable_downpour_server_param()
                     ->mutable_downpour_table_param());
  if (all.has_worker_param())
    found = set(*all.mutable_worker_param()
                     ->mutable_downpour_worker_param()
                     ->mutable_downpour_table_param()) &&
            found;
  std::string text;
  if (!found || !google::protobuf::TextFormat::PrintToString(all, &text))
    return Internal("the description of the job has no decays of adam_d2sum");
  return text;
}

}  // namespace millrace::fleet
