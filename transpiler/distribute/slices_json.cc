#include "transpiler/distribute/slices_json.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/types.h"
#include "framework/var.h"

namespace millrace::transpiler {
namespace {

using Json = nlohmann::ordered_json;

// Writes the file from front to back, indented by one space per level. A document tree of it would
// take ten times the memory and, with many slices, more time than distributing the program.
class SlicesText {
 public:
  SlicesText& key(const char* name) {
    begin_item();
    text_ += '"';
    text_ += name;
    text_ += "\": ";
    after_key_ = true;
    return *this;
  }
  void open(char bracket) {
    begin_item();
    text_ += bracket;
    empty_.push_back(true);
  }
  void close(char bracket) {
    const bool was_empty = empty_.back();
    empty_.pop_back();
    if (!was_empty) line();
    text_ += bracket;
  }
  void value(const std::string& v) {
    begin_item();
    const bool plain = std::all_of(
        v.begin(), v.end(), [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; });
    if (plain) {
      text_ += '"';
      text_ += v;
      text_ += '"';
    } else {
      text_ += Json(v).dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }
  void value(int64_t v) {
    begin_item();
    text_ += fmt::format_int(v).c_str();
  }
  void value(int32_t v) { value(int64_t{v}); }
  void value(bool v) { word(v ? "true" : "false"); }
  void value(double v) { word(Json(v).dump()); }
  template <typename T>
  void value(const std::vector<T>& list) {
    open('[');
    for (const T& v : list) value(v);
    close(']');
  }
  void value_or_null(const std::string& v) {
    if (v.empty()) {
      word("null");
    } else {
      value(v);
    }
  }
  /// The document with a line feed at the end.
  std::string take() {
    text_ += '\n';
    return std::move(text_);
  }

 private:
  void word(const std::string& word) {
    begin_item();
    text_ += word;
  }
  // Writes the comma and line feed before a key or an element; nothing after a key.
  void begin_item() {
    if (after_key_) {
      after_key_ = false;
      return;
    }
    if (empty_.empty()) return;
    if (!empty_.back()) text_ += ',';
    empty_.back() = false;
    line();
  }
  void line() {
    text_ += '\n';
    text_.append(empty_.size(), ' ');
  }

  std::string text_;
  std::vector<bool> empty_;  // of each open bracket
  bool after_key_ = false;
};

void write_facts(SlicesText& out, const VarFacts& facts) {
  out.open('{');
  out.key("name").value(facts.name);
  out.key("shape").value(facts.shape);
  out.key("dtype").value(facts.dtype);
  out.key("type").value(facts.type);
  out.key("lod_level").value(facts.lod_level);
  out.key("persistable").value(facts.persistable);
  out.close('}');
}

void write_overview(SlicesText& out, const ProgramProperties& properties,
                    const VarsDistributed& overview) {
  out.open('{');
  out.key("is_distributed").value(properties.is_distributed);
  out.key("is_chief").value(properties.is_chief);
  out.key("ps_endpoint").value_or_null(properties.ps_endpoint);
  out.key("endpoints").value(properties.endpoints);
  out.key("distributed_lookup_table").value_or_null(properties.distributed_lookup_table);
  out.key("vars").open('[');
  for (const DistributedVar& var : overview.vars()) {
    out.open('{');
    write_facts(out.key("origin"), var.origin);
    write_facts(out.key("slice"), var.slice);
    out.key("is_slice").value(var.is_slice);
    out.key("block_id").value(var.block_id);
    out.key("offset").value(var.offset);
    out.key("vtype").value(var.vtype);
    out.key("endpoint").value(var.endpoint);
    out.close('}');
  }
  out.close(']');
  out.close('}');
}

void write_origin(SlicesText& out, const OriginSlices& origin) {
  out.open('{');
  out.key("name").value(origin.origin.name);
  out.key("vtype").value(origin.vtype);
  out.key("dtype").value(std::string(dtype_name(static_cast<DType>(origin.origin.dtype))));
  out.key("dims").value(origin.origin.shape);
  out.key("bytes").value(slice_bytes(origin.origin));
  out.key("slices").open('[');
  for (const DistributedVar* const var : origin.slices) {
    out.open('{');
    out.key("name").value(var->slice.name);
    out.key("endpoint").value(var->endpoint);
    out.key("block_id").value(var->block_id);
    out.key("offset").value(var->offset);
    out.key("dims").value(var->slice.shape);
    out.key("bytes").value(slice_bytes(var->slice));
    out.close('}');
  }
  out.close(']');
  out.close('}');
}

// The parameters of state that the overview lists as whole, by the name of the state.
std::map<std::string, std::string> params_of_state(const VarsDistributed& overview) {
  std::map<std::string, std::string> params;
  for (const DistributedVar& var : overview.vars())
    if (var.param) params.try_emplace(var.origin.name, *var.param);
  return params;
}

void write_state(SlicesText& out, const std::map<std::string, std::string>& params) {
  out.open('[');
  for (const auto& [state, param] : params) {
    out.open('{');
    out.key("name").value(state);
    out.key("param").value_or_null(param);
    out.close('}');
  }
  out.close(']');
}

void write_geo(SlicesText& out, const GeoFacts& geo) {
  out.open('{');
  out.key("push_nums").value(geo.push_nums);
  out.key("trainers").value(geo.trainers);
  out.key("vars").open('[');
  for (const GeoVar& var : geo.vars) {
    out.open('{');
    out.key("name").value(var.origin);
    out.key("var_names").value(var.var_names);
    out.key("sections").value(var.sections);
    out.key("epmap").value(var.epmap);
    out.key("is_sparse").value(var.is_sparse);
    out.close('}');
  }
  out.close(']');
  out.close('}');
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
  SlicesText out;
  out.open('{');
  out.key("schema").value(std::string(kSlicesSchema));
  out.key("version").value(kSlicesVersion);
  write_overview(out.key("overview"), properties, overview);
  out.key("vars").open('[');
  for (const OriginSlices& origin : slices_by_origin(overview)) write_origin(out, origin);
  out.close(']');
  out.key("servers").open('[');
  std::vector<double> shares;
  for (const ServerBytes& server : bytes_by_server(properties, overview)) {
    out.open('{');
    out.key("endpoint").value(server.endpoint);
    out.key("bytes").value(server.bytes());
    out.key("param_bytes").value(server.param_bytes);
    out.key("state_bytes").value(server.state_bytes);
    out.key("slices").value(server.slices);
    out.close('}');
    shares.push_back(static_cast<double>(server.bytes()));
  }
  out.close(']');
  out.key("imbalance").value(imbalance(shares));
  if (!properties.rates.empty()) out.key("rates").value(properties.rates);
  if (!properties.schedule.empty()) out.key("schedule").value(properties.schedule);
  if (const auto params = params_of_state(overview); !params.empty())
    write_state(out.key("listed_whole"), params);
  if (!properties.training.empty()) out.key("training").value(properties.training);
  if (properties.geo) write_geo(out.key("geo"), *properties.geo);
  out.close('}');
  return out.take();
}

}  // namespace millrace::transpiler
