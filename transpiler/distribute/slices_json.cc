#include "transpiler/distribute/slices_json.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "framework/types.h"
#include "framework/var.h"

namespace millrace::transpiler {
namespace {

using Json = nlohmann::ordered_json;

Json facts_json(const VarFacts& facts) {
  return Json{{"name", facts.name},           {"shape", facts.shape},
              {"dtype", facts.dtype},         {"type", facts.type},
              {"lod_level", facts.lod_level}, {"persistable", facts.persistable}};
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json overview_json(const ProgramProperties& properties, const VarsDistributed& overview) {
  Json out{{"is_distributed", properties.is_distributed},
           {"is_chief", properties.is_chief},
           {"ps_endpoint", text_or_null(properties.ps_endpoint)},
           {"endpoints", properties.endpoints},
           {"distributed_lookup_table", text_or_null(properties.distributed_lookup_table)},
           {"vars", Json::array()}};
  for (const DistributedVar& var : overview.vars()) {
    out["vars"].push_back(Json{{"origin", facts_json(var.origin)},
                               {"slice", facts_json(var.slice)},
                               {"is_slice", var.is_slice},
                               {"block_id", var.block_id},
                               {"offset", var.offset},
                               {"vtype", var.vtype},
                               {"endpoint", var.endpoint}});
  }
  return out;
}

Json origin_json(const OriginSlices& origin) {
  Json slices = Json::array();
  for (const DistributedVar* const var : origin.slices) {
    slices.push_back(Json{{"name", var->slice.name},
                          {"endpoint", var->endpoint},
                          {"block_id", var->block_id},
                          {"offset", var->offset},
                          {"dims", var->slice.shape},
                          {"bytes", slice_bytes(var->slice)}});
  }
  const std::string_view dtype = dtype_name(static_cast<DType>(origin.origin.dtype));
  return Json{{"name", origin.origin.name},          {"vtype", origin.vtype},
              {"dtype", std::string(dtype)},         {"dims", origin.origin.shape},
              {"bytes", slice_bytes(origin.origin)}, {"slices", std::move(slices)}};
}

Json geo_json(const GeoFacts& geo) {
  Json vars = Json::array();
  for (const GeoVar& var : geo.vars) {
    vars.push_back(Json{{"name", var.origin},
                        {"var_names", var.var_names},
                        {"sections", var.sections},
                        {"epmap", var.epmap},
                        {"is_sparse", var.is_sparse}});
  }
  return Json{{"push_nums", geo.push_nums}, {"trainers", geo.trainers}, {"vars", std::move(vars)}};
}

}  // namespace

std::vector<OriginSlices> slices_by_origin(const VarsDistributed& overview) {
  std::vector<OriginSlices> out;
  std::map<std::string, size_t> index;
  for (const DistributedVar& var : overview.vars()) {
    const auto [it, added] = index.try_emplace(var.origin.name, out.size());
    if (added) out.push_back({var.origin, var.vtype, {}});
    out[it->second].slices.push_back(&var);
  }
  return out;
}

int64_t slice_bytes(const VarFacts& slice) {
  const std::optional<int64_t> count = element_count(slice.shape);
  const int64_t size = dtype_size(static_cast<DType>(slice.dtype));
  if (!count || *count < 0 || size == 0 || *count > INT64_MAX / size) return 0;
  return *count * size;
}

std::vector<ServerBytes> bytes_by_server(const ProgramProperties& properties,
                                         const VarsDistributed& overview) {
  std::vector<ServerBytes> out;
  std::map<std::string, size_t> index;
  for (const std::string& endpoint : properties.endpoints) {
    index.try_emplace(endpoint, out.size());
    out.push_back({.endpoint = endpoint});
  }
  for (const DistributedVar& var : overview.vars()) {
    const auto it = index.find(var.endpoint);
    if (it == index.end()) continue;
    ServerBytes& server = out[it->second];
    (var.vtype == "Optimizer" ? server.state_bytes : server.param_bytes) += slice_bytes(var.slice);
    ++server.slices;
  }
  return out;
}

double imbalance(const std::vector<double>& shares) {
  double sum = 0;
  for (const double share : shares) sum += share;
  if (sum <= 0) return 1;
  return *std::max_element(shares.begin(), shares.end()) * static_cast<double>(shares.size()) / sum;
}

std::string slices_json(const ProgramProperties& properties, const VarsDistributed& overview) {
  Json vars = Json::array();
  for (const OriginSlices& origin : slices_by_origin(overview)) vars.push_back(origin_json(origin));
  Json servers = Json::array();
  std::vector<double> shares;
  for (const ServerBytes& server : bytes_by_server(properties, overview)) {
    servers.push_back(Json{{"endpoint", server.endpoint},
                           {"bytes", server.bytes()},
                           {"param_bytes", server.param_bytes},
                           {"state_bytes", server.state_bytes},
                           {"slices", server.slices}});
    shares.push_back(static_cast<double>(server.bytes()));
  }
  Json file{{"schema", kSlicesSchema},
            {"version", kSlicesVersion},
            {"overview", overview_json(properties, overview)},
            {"vars", std::move(vars)},
            {"servers", std::move(servers)},
            {"imbalance", imbalance(shares)}};
  if (properties.geo) file["geo"] = geo_json(*properties.geo);
  return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace millrace::transpiler
