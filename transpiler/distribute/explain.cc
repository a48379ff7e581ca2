#include "transpiler/distribute/explain.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/base/text.h"
#include "framework/types.h"
#include "transpiler/distribute/slices_json.h"
#include "transpiler/distribute/units.h"

namespace millrace::transpiler {
namespace {

constexpr int kExplainVersion = 1;

// One line of the map.
struct Row {
  std::string name;
  std::string dims;
  std::string bytes;
  std::string state;
  std::string server;
  std::string update;
  std::string why;
};

std::string dims_text(const VarFacts& facts) {
  std::string out;
  for (const int64_t dim : facts.shape) out += (out.empty() ? "" : "x") + std::to_string(dim);
  return out.empty() ? "scalar" : out;
}

std::string_view traffic_name(Traffic traffic) {
  switch (traffic) {
    case Traffic::kDense:
      return "dense";
    case Traffic::kSparse:
      return "sparse";
    case Traffic::kPrefetch:
      return "prefetch";
  }
  return "dense";
}

// Looks up the facts of the cost model about a slice and its parameter.
class KnownCosts {
 public:
  explicit KnownCosts(const CostInput& input) {
    for (const ParamNote& note : input.notes) notes_.emplace(note.param, &note);
    for (const CostSlice& slice : input.slices) {
      const std::string& at = input.endpoints[static_cast<size_t>(slice.server)];
      slices_.emplace(std::pair(slice.name, at), &slice);
    }
  }
  [[nodiscard]] const ParamNote* note(const std::string& param) const {
    const auto it = notes_.find(param);
    return it == notes_.end() ? nullptr : it->second;
  }
  [[nodiscard]] const CostSlice* slice(const DistributedVar& var) const {
    const auto it = slices_.find({var.slice.name, var.endpoint});
    return it == slices_.end() ? nullptr : it->second;
  }

 private:
  std::map<std::string, const ParamNote*> notes_;
  std::map<std::pair<std::string, std::string>, const CostSlice*> slices_;
};

std::string update_text(const ParamNote* note) {
  if (note == nullptr || note->update_ops.empty()) return "on the trainers";
  std::string out;
  for (const std::string& type : note->update_ops) out += (out.empty() ? "" : "+") + type;
  if (!note->rate.empty()) out += ", rate " + note->rate;
  return printable(out);
}

// "rows 0-682" of a sliced parameter.
std::string rows_text(const DistributedVar& var) {
  const auto& whole = var.origin.shape;
  int64_t row = 1;
  for (size_t i = 1; i < whole.size(); ++i) row *= std::max<int64_t>(whole[i], 1);
  const int64_t first = var.offset / row;
  const int64_t rows = var.slice.shape.empty() ? 1 : var.slice.shape.front();
  return fmt::format("  rows {}-{}", first, first + rows - 1);
}

void add_rows(const OriginSlices& origin, const KnownCosts& known, std::vector<Row>& rows) {
  const ParamNote* const note = known.note(origin.origin.name);
  double state = 0;
  for (const DistributedVar* const var : origin.slices) {
    if (const CostSlice* const slice = known.slice(*var))
      state += static_cast<double>(slice->state_bytes);
  }
  const bool is_sliced = origin.slices.size() > 1;
  rows.push_back({printable(origin.origin.name), dims_text(origin.origin),
                  bytes_text(static_cast<double>(slice_bytes(origin.origin))), bytes_text(state),
                  is_sliced ? fmt::format("{} slices", origin.slices.size())
                            : printable(origin.slices[0]->endpoint),
                  update_text(note), note == nullptr ? "" : note->why});
  if (!is_sliced) return;
  for (const DistributedVar* const var : origin.slices) {
    const CostSlice* const slice = known.slice(*var);
    rows.push_back({rows_text(*var), dims_text(var->slice),
                    bytes_text(static_cast<double>(slice_bytes(var->slice))),
                    slice == nullptr ? "" : bytes_text(static_cast<double>(slice->state_bytes)),
                    printable(var->endpoint), "", ""});
  }
}

// If all parameters have the same update, prints it once above the table, not in every line.
std::string take_common_update(std::vector<Row>& rows) {
  std::string common;
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].update.empty()) continue;
    if (common.empty()) common = rows[i].update;
    if (rows[i].update != common) return "";
  }
  for (Row& row : rows) row.update.clear();
  return common.empty() ? "" : "every update: " + common + "\n\n";
}

// Columns as wide as their longest cell, without empty ones; numbers are right-aligned.
std::string table(const std::vector<Row>& rows) {
  using Column = std::pair<std::string Row::*, bool>;
  constexpr Column kColumns[] = {{&Row::name, false}, {&Row::dims, true},    {&Row::bytes, true},
                                 {&Row::state, true}, {&Row::server, false}, {&Row::update, false},
                                 {&Row::why, false}};
  std::vector<std::string> lines(rows.size());
  for (const auto& [cell, right] : kColumns) {
    size_t width = 0;
    for (const Row& row : rows) width = std::max(width, (row.*cell).size());
    if (width == 0) continue;
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::string& text = rows[i].*cell;
      if (!lines[i].empty()) lines[i] += "  ";
      lines[i] += right ? fmt::format("{:>{}}", text, width) : fmt::format("{:<{}}", text, width);
    }
  }
  std::string out;
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::vector<OriginSlices> params_of(const VarsDistributed& overview) {
  std::vector<OriginSlices> out;
  for (OriginSlices& origin : slices_by_origin(overview)) {
    if (origin.vtype != "Optimizer") out.push_back(std::move(origin));
  }
  return out;
}

// A distributed table is not in the overview: its rows are distributed by id, not split into
// slices.
std::vector<const CostSlice*> table_slices(const VarsDistributed& overview,
                                           const CostInput& input) {
  std::vector<const CostSlice*> out;
  for (const CostSlice& slice : input.slices) {
    if (overview.get_distributed_var_by_slice(slice.name) == nullptr) out.push_back(&slice);
  }
  return out;
}

void add_table_rows(const VarsDistributed& overview, const CostInput& input,
                    const KnownCosts& known, std::vector<Row>& rows) {
  std::string last;
  for (const CostSlice* const slice : table_slices(overview, input)) {
    if (slice->name != last) {
      const ParamNote* const note = known.note(slice->name);
      last = slice->name;
      rows.push_back({printable(last), "", "", "", "all", update_text(note),
                      note == nullptr ? "" : note->why});
    }
    rows.push_back({fmt::format("  {} rows", slice->rows), "",
                    bytes_text(static_cast<double>(slice->bytes)),
                    bytes_text(static_cast<double>(slice->state_bytes)),
                    printable(input.endpoints[static_cast<size_t>(slice->server)]), "", ""});
  }
}

nlohmann::ordered_json table_json(const CostSlice& slice, const CostInput& input) {
  return {{"name", slice.name},
          {"endpoint", input.endpoints[static_cast<size_t>(slice.server)]},
          {"rows", slice.rows},
          {"bytes", slice.bytes},
          {"traffic", std::string(traffic_name(slice.traffic))}};
}

nlohmann::ordered_json param_json(const OriginSlices& origin, const KnownCosts& known) {
  using Json = nlohmann::ordered_json;
  Json slices = Json::array();
  for (const DistributedVar* const var : origin.slices) {
    Json entry{{"name", var->slice.name},
               {"endpoint", var->endpoint},
               {"offset", var->offset},
               {"dims", var->slice.shape},
               {"bytes", slice_bytes(var->slice)}};
    if (const CostSlice* const slice = known.slice(*var)) {
      entry["state_bytes"] = slice->state_bytes;
      entry["traffic"] = std::string(traffic_name(slice->traffic));
    }
    slices.push_back(std::move(entry));
  }
  Json out{{"name", origin.origin.name},
           {"dtype", std::string(dtype_name(static_cast<DType>(origin.origin.dtype)))},
           {"dims", origin.origin.shape},
           {"bytes", slice_bytes(origin.origin)}};
  const ParamNote* const note = known.note(origin.origin.name);
  out["update_ops"] = note == nullptr ? std::vector<std::string>() : note->update_ops;
  out["rate"] = note == nullptr || note->rate.empty() ? Json(nullptr) : Json(note->rate);
  out["why"] = note == nullptr || note->why.empty() ? Json(nullptr) : Json(note->why);
  out["slices"] = std::move(slices);
  return out;
}

}  // namespace

std::string explain_text(const VarsDistributed& overview, const CostInput& input,
                         const CostReport* report) {
  if (report == nullptr)
    return "no parameter is held by servers only: every trainer holds all of them\n";
  const KnownCosts known(input);
  std::vector<Row> rows = {{"param", "dims", "bytes", "state", "server", "update", "why"}};
  for (const OriginSlices& origin : params_of(overview)) add_rows(origin, known, rows);
  add_table_rows(overview, input, known, rows);
  const std::string common = take_common_update(rows);
  return common + table(rows) + "\n" + cost_table(*report);
}

std::string explain_json(const VarsDistributed& overview, const CostInput& input,
                         const CostReport* report) {
  using Json = nlohmann::ordered_json;
  const KnownCosts known(input);
  Json params = Json::array();
  for (const OriginSlices& origin : params_of(overview))
    params.push_back(param_json(origin, known));
  Json tables = Json::array();
  for (const CostSlice* const slice : table_slices(overview, input))
    tables.push_back(table_json(*slice, input));
  const Json file{{"schema", {{"name", "millrace.explain"}, {"version", kExplainVersion}}},
                  {"cost", report == nullptr ? Json(nullptr) : Json::parse(cost_json(*report))},
                  {"params", std::move(params)},
                  {"distributed_tables", std::move(tables)}};
  return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace millrace::transpiler
