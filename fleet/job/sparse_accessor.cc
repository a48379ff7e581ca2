#include "fleet/job/sparse_accessor.h"

#include <cstdlib>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "proto/fleet_desc.pb.h"

namespace millrace::fleet {
namespace {

namespace desc = fleet_desc;

// A number in text such as "uniform_random&0&-0.01&0.01"; a negative index counts from the end.
StatusOr<double> constant_argument(const std::string& text, int index, const std::string& param) {
  llvm::SmallVector<llvm::StringRef, 4> parts;
  llvm::StringRef(text).split(parts, '&');
  const int at = index < 0 ? static_cast<int>(parts.size()) + index : index;
  double value = 0;
  if (at < 1 || at >= static_cast<int>(parts.size()) || parts[at].getAsDouble(value)) {
    return Unimplemented(
        "the table of '{}' needs an initializer with constant arguments (fill_constant, "
        "uniform_random, gaussian_random, truncated_gaussian_random), found '{}'",
        param, text);
  }
  return value;
}

Status complete_widths(const TableFacts& table, desc::TableAccessorParameter& out) {
  if (!out.has_accessor_class()) out.set_accessor_class("SparseAccessor");
  const bool plain = out.accessor_class() == "SparseAccessor";
  // show and click precede the row; other accessors count them as part of it
  const int64_t fea_dim = plain ? table.width + 2 : table.width;
  const int64_t embedx_dim = plain ? table.width - 1 : table.width - 3;
  if (embedx_dim < 0)
    return InvalidArgument("the embedding '{}' has {} elements per row, too few for {}",
                           table.param, table.width, out.accessor_class());
  if (!out.has_fea_dim()) out.set_fea_dim(static_cast<uint32_t>(fea_dim));
  if (!out.has_embedx_dim()) out.set_embedx_dim(static_cast<uint32_t>(embedx_dim));
  if (!out.has_embedx_threshold()) out.set_embedx_threshold(0);
  for (const auto& [name, wanted, found] :
       {std::tuple("fea_dim", fea_dim, out.fea_dim()),
        std::tuple("embedx_dim", embedx_dim, out.embedx_dim())}) {
    if (wanted == found) continue;
    return InvalidArgument(
        "fleet_desc_configs['{}']: the accessor {} of an embedding with {} elements per row has {} "
        "{}, expected {} (set sparse_embedx_dim)",
        table.param, out.accessor_class(), table.width, name, found, wanted);
  }
  return Ok();
}

template <typename Message, typename T>
void set_absent(Message& message, bool (Message::*has)() const, void (Message::*set)(T), T value) {
  if (!(message.*has)()) (message.*set)(value);
}

void complete_statistics(bool zero_width, desc::CtrAccessorParameter& out) {
  using Stats = desc::CtrAccessorParameter;
  if (zero_width) out.set_zero_init(false);
  set_absent(out, &Stats::has_nonclk_coeff, &Stats::set_nonclk_coeff, 0.1F);
  set_absent(out, &Stats::has_click_coeff, &Stats::set_click_coeff, 1.0F);
  set_absent(out, &Stats::has_base_threshold, &Stats::set_base_threshold, 0.0F);
  set_absent(out, &Stats::has_delta_threshold, &Stats::set_delta_threshold, 0.0F);
  set_absent(out, &Stats::has_delta_keep_days, &Stats::set_delta_keep_days, 16.0F);
  set_absent(out, &Stats::has_show_click_decay_rate, &Stats::set_show_click_decay_rate, 1.0F);
  set_absent(out, &Stats::has_delete_threshold, &Stats::set_delete_threshold, 0.0F);
  set_absent(out, &Stats::has_delete_after_unseen_days, &Stats::set_delete_after_unseen_days,
             30.0F);
  set_absent(out, &Stats::has_ssd_unseenday_threshold, &Stats::set_ssd_unseenday_threshold, 1);
}

Status complete_adam(const CommonAccessor& common, const TableFacts& table,
                     desc::SparseAdamSGDParameter& out, std::vector<std::string>& remarks) {
  if (!out.has_learning_rate()) {
    MILLRACE_ASSIGN_OR_RETURN(const double rate,
                              constant_argument(common.initializers.back(), 1, table.param));
    out.set_learning_rate(rate);
  }
  if (!out.has_initial_range()) {
    MILLRACE_ASSIGN_OR_RETURN(const double range,
                              constant_argument(common.initializers.front(), -1, table.param));
    out.set_initial_range(range);
  }
  const bool from_op = common.name == "adam";
  const auto decay = [&](size_t attr, bool was_set, double usual) -> StatusOr<double> {
    if (was_set) {
      remarks.push_back("the adam rule of table '" + table.param +
                        "' has the default decays; those of its settings have no effect");
    }
    if (was_set || !from_op) return usual;
    return constant_argument(common.attrs[attr], 1, table.param);
  };
  MILLRACE_ASSIGN_OR_RETURN(const double beta1, decay(0, out.has_beta1_decay_rate(), 0.9));
  MILLRACE_ASSIGN_OR_RETURN(const double beta2, decay(1, out.has_beta2_decay_rate(), 0.999));
  MILLRACE_ASSIGN_OR_RETURN(const double epsilon, decay(2, out.has_ada_epsilon(), 1e-8));
  out.set_beta1_decay_rate(beta1);
  out.set_beta2_decay_rate(beta2);
  out.set_ada_epsilon(epsilon);
  if (out.weight_bounds_size() == 0) {
    out.add_weight_bounds(-10);
    out.add_weight_bounds(10);
  }
  return Ok();
}

Status complete_rule(const CommonAccessor& common, const TableFacts& table,
                     desc::SparseCommonSGDRuleParameter& out, std::vector<std::string>& remarks) {
  if (!out.has_name()) out.set_name("SparseAdamSGDRule");
  if (out.name() == "SparseAdamSGDRule" || out.name() == "SparseSharedAdamSGDRule")
    return complete_adam(common, table, *out.mutable_adam(), remarks);
  return Ok();
}

}  // namespace

Status complete_accessor(const CommonAccessor& common, const TableFacts& table,
                         desc::TableAccessorParameter& out, std::vector<std::string>& remarks) {
  MILLRACE_RETURN_IF_ERROR(complete_widths(table, out));
  desc::GraphSGDParameter& graph = *out.mutable_graph_sgd_param();
  if (!graph.has_nodeid_slot()) graph.set_nodeid_slot(9008);
  if (!graph.has_feature_learning_rate()) graph.set_feature_learning_rate(0.05F);
  complete_statistics(out.embedx_dim() == 0, *out.mutable_ctr_accessor_param());
  MILLRACE_RETURN_IF_ERROR(complete_rule(common, table, *out.mutable_embed_sgd_param(), remarks));
  return complete_rule(common, table, *out.mutable_embedx_sgd_param(), remarks);
}

bool follows_optimizer(const desc::TableParameter& table) {
  CommonAccessor common;
  common.name = table.common().name();
  common.initializers.assign(table.common().initializers().begin(),
                             table.common().initializers().end());
  if (common.initializers.empty()) return false;
  llvm::SmallVector<llvm::StringRef, 4> attrs;
  llvm::StringRef(table.common().attr()).split(attrs, '#', -1, false);
  for (const llvm::StringRef attr : attrs) common.attrs.push_back(attr.str());
  if (common.name == "adam" && common.attrs.size() < 3) return false;
  // What complete_accessor() makes of an empty accessor; the settings of users have more.
  desc::TableAccessorParameter plain;
  std::vector<std::string> remarks;
  const TableFacts facts{.param = table.common().table_name(),
                         .size = table.common().table_num(),
                         .width = table.common().table_dim(),
                         .is_sparse = true};
  return complete_accessor(common, facts, plain, remarks).ok() &&
         plain.SerializeAsString() == table.accessor().SerializeAsString();
}

}  // namespace millrace::fleet
