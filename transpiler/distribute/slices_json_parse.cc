#include <map>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::transpiler {
namespace {

// Reads members of one JSON object and keeps the first error; later reads then do nothing.
class Reader {
 public:
  Reader(const nlohmann::json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object_.is_object()) fail("", "an object");
  }

  void read(const char* name, bool& out) {
    if (const nlohmann::json* const value =
            member(name, &nlohmann::json::is_boolean, "true or false")) {
      out = value->get<bool>();
    }
  }
  void read(const char* name, std::string& out, bool nullable = false) {
    const nlohmann::json* const found = find(name);
    if (nullable && found != nullptr && found->is_null()) {
      out.clear();
    } else if (const nlohmann::json* const value =
                   member(name, &nlohmann::json::is_string, "a string")) {
      out = value->get<std::string>();
    }
  }
  void read(const char* name, int64_t& out) {
    const nlohmann::json* const value =
        member(name, &nlohmann::json::is_number_integer, "an integer");
    if (value == nullptr) return;
    if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) {
      fail(name, "an integer of 63 bits");
    } else {
      out = value->get<int64_t>();
    }
  }
  void read(const char* name, int32_t& out) {
    int64_t wide = 0;
    read(name, wide);
    if (wide < INT32_MIN || wide > INT32_MAX) {
      fail(name, "an integer of 31 bits");
    } else {
      out = static_cast<int32_t>(wide);
    }
  }
  void read(const char* name, std::vector<int64_t>& out) {
    const nlohmann::json* const items = list(name);
    if (items == nullptr) return;
    for (const nlohmann::json& item : *items) {
      if (!item.is_number_integer()) return fail(name, "a list of integers");
      out.push_back(item.get<int64_t>());
    }
  }
  void read(const char* name, std::vector<std::string>& out) {
    const nlohmann::json* const items = list(name);
    if (items == nullptr) return;
    for (const nlohmann::json& item : *items) {
      if (!item.is_string()) return fail(name, "a list of strings");
      out.push_back(item.get<std::string>());
    }
  }
  [[nodiscard]] bool has(const char* name) const { return find(name) != nullptr; }
  /// Null, with an error, if the member is absent or of another kind.
  const nlohmann::json* list(const char* name) {
    return member(name, &nlohmann::json::is_array, "a list");
  }
  const nlohmann::json* object(const char* name) {
    return member(name, &nlohmann::json::is_object, "an object");
  }

  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const nlohmann::json* find(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(name);
    return it == object_.end() ? nullptr : &*it;
  }
  const nlohmann::json* member(const char* name, bool (nlohmann::json::*is_kind)() const noexcept,
                               const char* kind) {
    const nlohmann::json* const value = find(name);
    if (value != nullptr && (value->*is_kind)()) return value;
    fail(name, kind);
    return nullptr;
  }
  void fail(const std::string& name, const char* expected) {
    if (!status_.ok()) return;
    const std::string where = path_ + (path_.empty() || name.empty() ? "" : ".") + name;
    status_ =
        InvalidData("slices.json: {} is not {}", where.empty() ? "the file" : where, expected);
  }

  const nlohmann::json& object_;
  std::string path_;
  Status status_;
};

StatusOr<VarFacts> read_facts(Reader& parent, const char* name, const std::string& path) {
  const nlohmann::json* const object = parent.object(name);
  if (object == nullptr) return parent.status();
  Reader reader(*object, path + "." + name);
  VarFacts facts;
  reader.read("name", facts.name);
  reader.read("shape", facts.shape);
  reader.read("dtype", facts.dtype);
  reader.read("type", facts.type);
  reader.read("lod_level", facts.lod_level);
  reader.read("persistable", facts.persistable);
  MILLRACE_RETURN_IF_ERROR(reader.status());
  if (!is_valid(static_cast<DType>(facts.dtype)) || !is_valid(static_cast<VarKind>(facts.type))) {
    return InvalidData("slices.json: {}.{} has dtype {} and type {}, which do not exist", path,
                       name, facts.dtype, facts.type);
  }
  return facts;
}

StatusOr<DistributedVar> read_var(const nlohmann::json& item, const std::string& path) {
  Reader reader(item, path);
  MILLRACE_RETURN_IF_ERROR(reader.status());
  DistributedVar var;
  MILLRACE_ASSIGN_OR_RETURN(var.origin, read_facts(reader, "origin", path));
  MILLRACE_ASSIGN_OR_RETURN(var.slice, read_facts(reader, "slice", path));
  reader.read("is_slice", var.is_slice);
  reader.read("block_id", var.block_id);
  reader.read("offset", var.offset);
  reader.read("vtype", var.vtype);
  reader.read("endpoint", var.endpoint);
  MILLRACE_RETURN_IF_ERROR(reader.status());
  return var;
}

StatusOr<GeoVar> read_geo_var(const nlohmann::json& item, const std::string& path) {
  Reader reader(item, path);
  GeoVar var;
  reader.read("name", var.origin);
  reader.read("var_names", var.var_names);
  reader.read("sections", var.sections);
  reader.read("epmap", var.epmap);
  reader.read("is_sparse", var.is_sparse);
  MILLRACE_RETURN_IF_ERROR(reader.status());
  if (var.var_names.size() != var.sections.size() || var.var_names.size() != var.epmap.size()) {
    return InvalidData(
        "slices.json: {} has {} var_names, {} sections and {} epmap, expected equal numbers", path,
        var.var_names.size(), var.sections.size(), var.epmap.size());
  }
  return var;
}

StatusOr<GeoFacts> read_geo(Reader& top) {
  const nlohmann::json* const object = top.object("geo");
  if (object == nullptr) return top.status();
  Reader reader(*object, "geo");
  GeoFacts geo;
  reader.read("push_nums", geo.push_nums);
  reader.read("trainers", geo.trainers);
  const nlohmann::json* const vars = reader.list("vars");
  MILLRACE_RETURN_IF_ERROR(reader.status());
  if (geo.push_nums < 1 || geo.trainers < 1) {
    return InvalidData("slices.json: geo has push_nums {} and trainers {}, expected 1 or more",
                       geo.push_nums, geo.trainers);
  }
  for (const nlohmann::json& item : *vars) {
    MILLRACE_ASSIGN_OR_RETURN(GeoVar var,
                              read_geo_var(item, fmt::format("geo.vars[{}]", geo.vars.size())));
    geo.vars.push_back(std::move(var));
  }
  return geo;
}

// The parameters of state that the overview lists as whole, by the name of the state.
StatusOr<std::map<std::string, std::string>> read_listed_whole(Reader& top) {
  std::map<std::string, std::string> params;
  if (!top.has("listed_whole")) return params;
  const nlohmann::json* const states = top.list("listed_whole");
  MILLRACE_RETURN_IF_ERROR(top.status());
  for (const nlohmann::json& item : *states) {
    Reader reader(item, fmt::format("listed_whole[{}]", params.size()));
    std::string name;
    std::string param;
    reader.read("name", name);
    reader.read("param", param, true);
    MILLRACE_RETURN_IF_ERROR(reader.status());
    if (!params.try_emplace(name, param).second)
      return InvalidData("slices.json: listed_whole has {} twice", in_quotes(name));
  }
  return params;
}

Status check_schema(Reader& file) {
  std::string schema;
  int64_t version = 0;
  file.read("schema", schema);
  file.read("version", version);
  MILLRACE_RETURN_IF_ERROR(file.status());
  if (schema != kSlicesSchema) {
    return InvalidData("slices.json: schema is {}, expected {}", in_quotes(schema),
                       in_quotes(kSlicesSchema));
  }
  if (version < 1 || version > kSlicesVersion) {
    return InvalidData("slices.json: version is {}, this build reads 1 to {}", version,
                       kSlicesVersion);
  }
  return Ok();
}

}  // namespace

StatusOr<SlicesFile> parse_slices_json(const std::string& text) {
  const nlohmann::json file = nlohmann::json::parse(text, nullptr, false);
  if (file.is_discarded()) return InvalidData("slices.json: the text is not valid JSON");
  Reader top(file, "");
  MILLRACE_RETURN_IF_ERROR(check_schema(top));
  const nlohmann::json* const overview = top.object("overview");
  if (overview == nullptr) return top.status();
  Reader reader(*overview, "overview");
  SlicesFile out;
  reader.read("is_distributed", out.properties.is_distributed);
  reader.read("is_chief", out.properties.is_chief);
  reader.read("ps_endpoint", out.properties.ps_endpoint, true);
  reader.read("endpoints", out.properties.endpoints);
  reader.read("distributed_lookup_table", out.properties.distributed_lookup_table, true);
  const nlohmann::json* const vars = reader.list("vars");
  MILLRACE_RETURN_IF_ERROR(reader.status());
  MILLRACE_ASSIGN_OR_RETURN(const auto params, read_listed_whole(top));
  int64_t index = 0;
  for (const nlohmann::json& item : *vars) {
    MILLRACE_ASSIGN_OR_RETURN(DistributedVar var,
                              read_var(item, fmt::format("overview.vars[{}]", index++)));
    if (const auto param = params.find(var.origin.name); param != params.end())
      var.param = param->second;
    out.overview.add_distributed_var(std::move(var));
  }
  if (top.has("rates")) top.read("rates", out.properties.rates);
  if (top.has("schedule")) top.read("schedule", out.properties.schedule);
  if (top.has("training")) top.read("training", out.properties.training);
  MILLRACE_RETURN_IF_ERROR(top.status());
  if (top.has("geo")) {
    MILLRACE_ASSIGN_OR_RETURN(out.properties.geo, read_geo(top));
  }
  return out;
}

}  // namespace millrace::transpiler
