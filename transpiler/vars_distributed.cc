#include "transpiler/vars_distributed.h"

#include <algorithm>

namespace millrace::transpiler {

DistributedVar& VarsDistributed::add_distributed_var(DistributedVar var) {
  by_slice_.try_emplace(var.slice.name, vars_.size());
  vars_.push_back(std::move(var));
  return vars_.back();
}

const DistributedVar* VarsDistributed::get_distributed_var_by_slice(const std::string& name) const {
  const auto it = by_slice_.find(name);
  return it == by_slice_.end() ? nullptr : &vars_[it->second];
}

DistributedVar* VarsDistributed::get_distributed_var_by_slice(const std::string& name) {
  const auto it = by_slice_.find(name);
  return it == by_slice_.end() ? nullptr : &vars_[it->second];
}

const DistributedVar* VarsDistributed::get_distributed_var_by_origin_and_ep(
    const std::string& origin, const std::string& endpoint) const {
  const auto it = std::find_if(vars_.begin(), vars_.end(), [&](const DistributedVar& var) {
    return var.origin.name == origin && var.endpoint == endpoint;
  });
  return it == vars_.end() ? nullptr : &*it;
}

std::vector<std::pair<std::string, std::vector<const DistributedVar*>>>
VarsDistributed::get_distributed_vars_by_vtypes(const std::vector<std::string>& vtypes) const {
  std::vector<std::pair<std::string, std::vector<const DistributedVar*>>> groups;
  std::map<std::string, size_t> index;
  for (const DistributedVar& var : vars_) {
    if (std::find(vtypes.begin(), vtypes.end(), var.vtype) == vtypes.end()) continue;
    const auto [it, added] = index.try_emplace(var.origin.name, groups.size());
    if (added) groups.push_back({var.origin.name, {}});
    groups[it->second].second.push_back(&var);
  }
  return groups;
}

std::vector<const DistributedVar*> VarsDistributed::get_distributed_vars_by_ep(
    const std::string& endpoint, const std::string& vtype) const {
  std::vector<const DistributedVar*> out;
  for (const DistributedVar& var : vars_) {
    if (var.endpoint == endpoint && (vtype.empty() || var.vtype == vtype)) out.push_back(&var);
  }
  return out;
}

bool VarsDistributed::equal(const VarFacts& a, const VarFacts& b) {
  return a.name == b.name && a.type == b.type && a.shape == b.shape;
}

std::string VarsDistributed::overview() const {
  std::string out;
  auto shape_text = [](const std::vector<int64_t>& shape) {
    std::string text;
    for (const int64_t dim : shape) text += (text.empty() ? "" : ", ") + std::to_string(dim);
    return "[" + text + "]";
  };
  for (const DistributedVar& var : vars_) {
    out += var.origin.name + " " + shape_text(var.origin.shape) + " -> " + var.slice.name + " " +
           shape_text(var.slice.shape) + ", block " + std::to_string(var.block_id) + ", offset " +
           std::to_string(var.offset) + ", " + var.vtype + ", " +
           (var.endpoint.empty() ? "unplaced" : var.endpoint) + "\n";
  }
  return out;
}

}  // namespace millrace::transpiler
