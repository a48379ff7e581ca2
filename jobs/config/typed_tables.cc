#include "jobs/config/typed_tables.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/paths.h"
#include "jobs/config/json_fields.h"
#include "transpiler/distribute/typed_tables.h"

namespace millrace::jobs {
namespace {

using Json = nlohmann::json;
using Accessor = ps::AccessorOptions;
using Rule = ps::SparseRuleOptions;

constexpr int64_t kMaxBytes = int64_t{16} << 20;

// Names of the original; for each kind the first name is the one that is written.
constexpr std::pair<const char*, Accessor::Kind> kAccessors[] = {
    {"EmbeddingAccessor", Accessor::Kind::kEmbedding},
    {"SparseAccessor", Accessor::Kind::kSparse},
    {"CtrCommonAccessor", Accessor::Kind::kCtrCommon}};
constexpr std::pair<const char*, Rule::Kind> kRules[] = {
    {"SparseNaiveSGDRule", Rule::Kind::kNaive},
    {"SparseAdaGradSGDRule", Rule::Kind::kAdagrad},
    {"StdAdaGradSGDRule", Rule::Kind::kStdAdagrad},
    {"SparseAdamSGDRule", Rule::Kind::kAdam},
    {"SparseSharedAdamSGDRule", Rule::Kind::kSharedAdam}};

template <typename Kind, size_t n>
const char* name_of(const std::pair<const char*, Kind> (&names)[n], Kind kind) {
  for (const auto& [name, each] : names) {
    if (each == kind) return name;
  }
  return "";
}

template <typename Kind, size_t n>
Status read_one_of(JsonFields& fields, const char* key,
                   const std::pair<const char*, Kind> (&names)[n], Kind& out) {
  std::string text;
  fields.text(key, text);
  if (text.empty()) return Ok();
  std::string known;
  for (const auto& [name, kind] : names) {
    known += (known.empty() ? "" : ", ") + std::string(name);
    if (text != name) continue;
    out = kind;
    return Ok();
  }
  return InvalidArgument("'{}': expected one of {}, found '{}'", fields.path_of(key), known, text);
}

Status read_rule(JsonFields& parent, const char* key, Rule& rule) {
  const Json* const object = parent.find(key);
  if (object == nullptr) return Ok();
  JsonFields fields(*object, parent.path_of(key));
  MILLRACE_RETURN_IF_ERROR(read_one_of(fields, "name", kRules, rule.kind));
  fields.number("learning_rate", rule.learning_rate)
      .number("initial_g2sum", rule.initial_g2sum)
      .number("initial_range", rule.initial_range)
      .number("beta1_decay_rate", rule.beta1)
      .number("beta2_decay_rate", rule.beta2)
      .number("ada_epsilon", rule.epsilon);
  std::vector<double> bounds;
  fields.numbers("weight_bounds", bounds);
  if (bounds.size() == 2) {
    rule.min_bound = static_cast<float>(bounds[0]);
    rule.max_bound = static_cast<float>(bounds[1]);
  } else if (!bounds.empty()) {
    return InvalidArgument("'{}': expected two numbers, found {}", fields.path_of("weight_bounds"),
                           bounds.size());
  }
  return fields.finish();
}

// The settings that are both in a configuration and in tables.json.
Status read_settings(JsonFields& fields, int64_t width, ps::TypedTable& table,
                     std::string& initializer) {
  ps::SparseTableOptions& options = table.options;
  Accessor& accessor = options.accessor;
  MILLRACE_RETURN_IF_ERROR(read_one_of(fields, "accessor_class", kAccessors, accessor.kind));
  // A pull returns values as wide as the embedding (spec/ps_runtime.md section 7).
  const int behind = accessor.kind == Accessor::Kind::kEmbedding ? 0
                     : accessor.kind == Accessor::Kind::kSparse  ? 1
                                                                 : 3;
  accessor.embedx_dim = static_cast<int>(width) - behind;
  accessor.fea_dim = behind == 0 ? accessor.embedx_dim : accessor.embedx_dim + 3;
  for (const auto& [key, field] :
       {std::pair("embedx_threshold", &accessor.embedx_threshold),
        {"nonclk_coeff", &accessor.nonclk_coeff},
        {"click_coeff", &accessor.click_coeff},
        {"base_threshold", &accessor.base_threshold},
        {"delta_threshold", &accessor.delta_threshold},
        {"delta_keep_days", &accessor.delta_keep_days},
        {"show_click_decay_rate", &accessor.show_click_decay_rate},
        {"delete_threshold", &accessor.delete_threshold},
        {"delete_after_unseen_days", &accessor.delete_after_unseen_days}})
    fields.number(key, *field);
  fields.boolean("show_scale", accessor.show_scale).boolean("zero_init", accessor.zero_init);
  MILLRACE_RETURN_IF_ERROR(read_rule(fields, "embed_sgd_param", accessor.embed_rule));
  MILLRACE_RETURN_IF_ERROR(read_rule(fields, "embedx_sgd_param", accessor.embedx_rule));
  std::string table_class = options.disk_path.empty() ? "MemorySparseTable" : "SSDSparseTable";
  fields.text("table_class", table_class).text("disk_path", options.disk_path);
  if (table_class != "MemorySparseTable" && table_class != "SSDSparseTable")
    return InvalidArgument("'{}': expected MemorySparseTable or SSDSparseTable, found '{}'",
                           fields.path_of("table_class"), table_class);
  if ((table_class == "SSDSparseTable") == options.disk_path.empty())
    return InvalidArgument(
        "'{}': expected a folder for SSDSparseTable and none for MemorySparseTable",
        fields.path_of("disk_path"));
  fields.whole("memory_rows", options.memory_rows);
  fields.whole("seed", options.seed);
  fields.whole("shard_num", table.shard_num);
  fields.whole("shrink_every", table.shrink_every);
  if (table.shard_num < 1 || table.shrink_every < 0)
    return InvalidArgument("'{}' is {} and '{}' {}, expected above 0 and not below 0",
                           fields.path_of("shard_num"), table.shard_num,
                           fields.path_of("shrink_every"), table.shrink_every);
  fields.text("initializer", initializer);
  if (!initializer.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(accessor.initializer, ps::parse_initializer(initializer));
  }
  return fields.status();
}

bool states(const Json& settings, const char* key) {
  return settings.contains(key) && !settings[key].is_null();
}

// Members of a rule that only some kinds read.
Status check_rule_read(const Json& settings, const std::string& path, const Rule& rule,
                       bool reads_range) {
  const bool is_adagrad = rule.kind == Rule::Kind::kAdagrad || rule.kind == Rule::Kind::kStdAdagrad;
  const bool is_adam = rule.kind == Rule::Kind::kAdam || rule.kind == Rule::Kind::kSharedAdam;
  for (const auto& [key, is_read] : {std::pair("initial_g2sum", is_adagrad),
                                     {"initial_range", reads_range},
                                     {"beta1_decay_rate", is_adam},
                                     {"beta2_decay_rate", is_adam},
                                     {"ada_epsilon", is_adam}}) {
    if (!is_read && states(settings, key))
      return InvalidArgument("'{}.{}' has no effect with the rule {} of such a table", path, key,
                             name_of(kRules, rule.kind));
  }
  return Ok();
}

// A setting that the table would ignore is refused.
Status check_settings_read(const Json& settings, const JsonFields& fields,
                           const ps::SparseTableOptions& options) {
  const Accessor& accessor = options.accessor;
  const bool has_statistics = accessor.kind != Accessor::Kind::kEmbedding;
  for (const auto& [key, is_read] : {std::pair("embed_sgd_param", has_statistics),
                                     {"embedx_threshold", has_statistics},
                                     {"nonclk_coeff", has_statistics},
                                     {"click_coeff", has_statistics},
                                     {"base_threshold", has_statistics},
                                     {"delta_threshold", has_statistics},
                                     {"delta_keep_days", has_statistics},
                                     {"show_click_decay_rate", has_statistics},
                                     {"delete_threshold", has_statistics},
                                     {"delete_after_unseen_days", has_statistics},
                                     {"shrink_every", has_statistics},
                                     {"show_scale", accessor.kind == Accessor::Kind::kCtrCommon},
                                     {"zero_init", has_statistics},
                                     {"initializer", !has_statistics},
                                     {"memory_rows", !options.disk_path.empty()}}) {
    if (is_read || !states(settings, key)) continue;
    return InvalidArgument("'{}' has no effect on a {} of {}", fields.path_of(key),
                           options.disk_path.empty() ? "MemorySparseTable" : "SSDSparseTable",
                           name_of(kAccessors, accessor.kind));
  }
  for (const auto& [key, rule] : {std::pair("embed_sgd_param", &accessor.embed_rule),
                                  {"embedx_sgd_param", &accessor.embedx_rule}}) {
    if (!states(settings, key)) continue;
    MILLRACE_RETURN_IF_ERROR(
        check_rule_read(settings[key], fields.path_of(key), *rule, has_statistics));
  }
  return Ok();
}

// The update rule of tables that is equivalent to the optimizer, if there is one.
Status rule_of(const transpiler::TypedTableFacts& facts, Rule& rule, const std::string& param,
               bool is_given) {
  rule.learning_rate = static_cast<float>(facts.learning_rate);
  if (facts.optimizer == "sgd") {
    rule.kind = Rule::Kind::kNaive;
  } else if (facts.optimizer == "adam") {
    rule.kind = Rule::Kind::kAdam;
    rule.beta1 = static_cast<float>(facts.beta1);
    rule.beta2 = static_cast<float>(facts.beta2);
    rule.epsilon = static_cast<float>(facts.epsilon);
  } else if (!is_given) {
    return Unimplemented("typed table '{}': no update rule of tables is equivalent to '{}'", param,
                         facts.optimizer)
        .with_hint(
            "name a rule in embedx_sgd_param, and in embed_sgd_param of tables with statistics");
  }
  return Ok();
}

// Whether the settings name each rule that the table has.
bool names_rules(const Json& settings) {
  const auto names = [&](const char* key) {
    return settings.contains(key) && settings[key].is_object() && settings[key].contains("name");
  };
  const bool has_two =
      settings.contains("accessor_class") &&
      settings["accessor_class"] != name_of(kAccessors, Accessor::Kind::kEmbedding);
  return names("embedx_sgd_param") && (!has_two || names("embed_sgd_param"));
}

StatusOr<ps::TypedTable> make_table(const std::string& param, const Json& settings, int table_id,
                                    Program& main, Program& startup) {
  JsonFields fields(settings, "sparse_tables." + param);
  MILLRACE_RETURN_IF_ERROR(fields.status());
  std::string entry;
  transpiler::TypedTableUse use{param, table_id, "", "", false};
  fields.text("entry", entry).boolean("use_cvm", use.use_cvm);
  ps::TypedTable table;
  table.param = param;
  MILLRACE_ASSIGN_OR_RETURN(table.options.entry, ps::parse_entry(entry));
  use.show_var = table.options.entry.show_var;
  use.click_var = table.options.entry.click_var;
  MILLRACE_ASSIGN_OR_RETURN(const transpiler::TypedTableFacts facts,
                            transpiler::use_typed_table(main, startup, use));
  table.height = facts.height;
  table.options.table_id = table_id;
  table.options.name = param;
  if (facts.padding >= 0) table.options.padding = facts.padding;
  const bool is_given = names_rules(settings);
  MILLRACE_RETURN_IF_ERROR(rule_of(facts, table.options.accessor.embed_rule, param, is_given));
  table.options.accessor.embedx_rule = table.options.accessor.embed_rule;
  std::string initializer = facts.initializer;
  MILLRACE_RETURN_IF_ERROR(read_settings(fields, facts.width, table, initializer));
  MILLRACE_RETURN_IF_ERROR(fields.finish());
  MILLRACE_RETURN_IF_ERROR(check_settings_read(settings, fields, table.options));
  if (initializer.empty() && table.options.accessor.kind == Accessor::Kind::kEmbedding)
    return Unimplemented(
        "typed table '{}': the initial values of its rows are unknown; expected 'initializer'",
        param);
  return table;
}

Json rule_json(const Rule& rule) {
  return {{"name", name_of(kRules, rule.kind)},
          {"learning_rate", rule.learning_rate},
          {"initial_g2sum", rule.initial_g2sum},
          {"initial_range", rule.initial_range},
          {"weight_bounds", {rule.min_bound, rule.max_bound}},
          {"beta1_decay_rate", rule.beta1},
          {"beta2_decay_rate", rule.beta2},
          {"ada_epsilon", rule.epsilon}};
}

// Floats of a pulled row.
int width_of(const Accessor& accessor) {
  switch (accessor.kind) {
    case Accessor::Kind::kSparse:
      return accessor.embedx_dim + 1;
    case Accessor::Kind::kCtrCommon:
      return accessor.embedx_dim + 3;
    default:
      return accessor.embedx_dim;
  }
}

Json table_json(const ps::TypedTable& table) {
  const ps::SparseTableOptions& options = table.options;
  const Accessor& accessor = options.accessor;
  Json json = {{"param", table.param},
               {"table_id", options.table_id},
               {"height", table.height},
               {"width", width_of(accessor)},
               {"padding_idx", options.padding.value_or(-1)},
               {"endpoints", table.endpoints},
               {"shard_num", table.shard_num},
               {"shrink_every", table.shrink_every},
               {"table_class", options.disk_path.empty() ? "MemorySparseTable" : "SSDSparseTable"},
               {"disk_path", options.disk_path},
               {"memory_rows", options.memory_rows},
               {"seed", options.seed},
               {"entry", ps::entry_text(options.entry)},
               {"initializer", ps::initializer_text(accessor.initializer)},
               {"accessor_class", name_of(kAccessors, accessor.kind)},
               {"embedx_threshold", accessor.embedx_threshold},
               {"nonclk_coeff", accessor.nonclk_coeff},
               {"click_coeff", accessor.click_coeff},
               {"base_threshold", accessor.base_threshold},
               {"delta_threshold", accessor.delta_threshold},
               {"delta_keep_days", accessor.delta_keep_days},
               {"show_click_decay_rate", accessor.show_click_decay_rate},
               {"delete_threshold", accessor.delete_threshold},
               {"delete_after_unseen_days", accessor.delete_after_unseen_days},
               {"show_scale", accessor.show_scale},
               {"zero_init", accessor.zero_init},
               {"embed_sgd_param", rule_json(accessor.embed_rule)},
               {"embedx_sgd_param", rule_json(accessor.embedx_rule)}};
  return json;
}

StatusOr<ps::TypedTable> parse_table(const Json& json, const std::string& path) {
  JsonFields fields(json, path);
  ps::TypedTable table;
  int32_t width = 0;
  int64_t padding = -1;
  std::string entry;
  fields.require("param").require("table_id").require("width").require("endpoints");
  fields.text("param", table.param).text("entry", entry).strings("endpoints", table.endpoints);
  fields.whole("table_id", table.options.table_id);
  fields.whole("height", table.height);
  fields.whole("width", width);
  fields.whole("padding_idx", padding);
  MILLRACE_RETURN_IF_ERROR(fields.status());
  if (padding >= 0) table.options.padding = padding;
  table.options.name = table.param;
  MILLRACE_ASSIGN_OR_RETURN(table.options.entry, ps::parse_entry(entry));
  std::string initializer;
  MILLRACE_RETURN_IF_ERROR(read_settings(fields, width, table, initializer));
  MILLRACE_RETURN_IF_ERROR(fields.finish());
  return table;
}

}  // namespace

StatusOr<std::vector<ps::TypedTable>> make_typed_tables(const std::string& text,
                                                        const std::vector<std::string>& endpoints,
                                                        Program& main, Program& startup) {
  std::vector<ps::TypedTable> tables;
  if (text.empty()) return tables;
  StatusOr<Json> parsed = parse_json_object(text);
  if (!parsed.ok()) return std::move(parsed).status().with_note("in sparse_tables");
  const Json json = *std::move(parsed);
  for (const auto& [param, settings] : json.items()) {
    MILLRACE_ASSIGN_OR_RETURN(
        ps::TypedTable table,
        make_table(param, settings, static_cast<int>(tables.size()), main, startup));
    table.endpoints = endpoints;
    MILLRACE_RETURN_IF_ERROR(ps::layout_of(table).status());
    tables.push_back(std::move(table));
  }
  return tables;
}

std::string row_form(const ps::TypedTable& table) {
  const Accessor& accessor = table.options.accessor;
  std::string form = fmt::format("{} of width {} with {}", name_of(kAccessors, accessor.kind),
                                 width_of(accessor), name_of(kRules, accessor.embedx_rule.kind));
  if (accessor.kind == Accessor::Kind::kEmbedding) return form;  // its rows have one rule
  return form + fmt::format(" after {}", name_of(kRules, accessor.embed_rule.kind));
}

std::string typed_tables_json(const std::vector<ps::TypedTable>& tables) {
  Json list = Json::array();
  for (const ps::TypedTable& table : tables) list.push_back(table_json(table));
  return Json{{"tables", list}}.dump(1) + "\n";
}

StatusOr<std::vector<ps::TypedTable>> read_typed_tables(const std::string& slices) {
  std::vector<ps::TypedTable> tables;
  const std::string path = (std::filesystem::path(slices).parent_path() / "tables.json").string();
  if (slices.empty() || !io::may_exist(path)) return tables;
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  const Json json = Json::parse(text, nullptr, false);
  const auto list = json.is_object() ? json.find("tables") : json.end();
  if (list == json.end() || !list->is_array())
    return InvalidData("expected an object with a list 'tables'").in_file(path);
  for (const Json& each : *list) {
    StatusOr<ps::TypedTable> table = parse_table(each, fmt::format("tables[{}]", tables.size()));
    if (!table.ok()) return std::move(table).status().in_file(path);
    tables.push_back(*std::move(table));
  }
  return tables;
}

}  // namespace millrace::jobs
