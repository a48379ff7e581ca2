#include "tools/inspect/params.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/json_writer.h"
#include "framework/base/text.h"

namespace millrace::tools {
namespace {

using ParamsRow = std::array<std::string, 9>;

// Pads columns to their widest cell; empty columns are left out.
std::string table_params(const std::vector<ParamsRow>& rows) {
  constexpr size_t kLeftAligned = 4;
  ParamsRow::size_type columns = rows[0].size();
  std::array<size_t, 9> width{};
  for (size_t column = 0; column < columns; ++column) {
    bool used = column != 3;
    for (const ParamsRow& row : rows) {
      width[column] = std::max(width[column], row[column].size());
      used = used || (&row != rows.data() && !row[column].empty());
    }
    if (!used) width[column] = 0;
  }
  std::string out;
  for (const ParamsRow& row : rows) {
    std::string line;
    for (size_t column = 0; column < columns; ++column) {
      if (width[column] == 0) continue;
      if (!line.empty()) line += "  ";
      line += column < kLeftAligned ? fmt::format("{:<{}}", row[column], width[column])
                                    : fmt::format("{:>{}}", row[column], width[column]);
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace

std::string params_text(const std::vector<jobs::ParamFacts>& facts) {
  std::vector<ParamsRow> rows = {
      {"var", "dtype", "dims", "lod", "bytes", "min", "max", "mean", "nan"}};
  int64_t bytes = 0;
  for (const jobs::ParamFacts& fact : facts) {
    const auto number = [&](double value) {
      return fact.has_range ? fmt::format("{:.6g}", value) : std::string("-");
    };
    rows.push_back({printable(fact.name), std::string(dtype_name(fact.dtype)),
                    fmt::format("[{}]", fmt::join(fact.dims, ", ")), fact.lod,
                    std::to_string(fact.bytes), number(fact.min), number(fact.max),
                    number(fact.mean), std::to_string(fact.nan)});
    bytes += fact.bytes;
  }
  return table_params(rows) +
         fmt::format("{} var{}, {} bytes\n", facts.size(), facts.size() == 1 ? "" : "s", bytes);
}

std::string params_json(const std::vector<jobs::ParamFacts>& facts, const std::string& path) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.params").member("version", 1);
  out.end_object().member("file", path);
  out.key("params").begin_array();
  for (const jobs::ParamFacts& fact : facts) {
    out.begin_object().member("name", fact.name).member("dtype", dtype_name(fact.dtype));
    out.key("dims").begin_array().inline_array();
    for (const int64_t dim : fact.dims) out.value(dim);
    out.end_array();
    if (!fact.lod.empty()) out.member("lod", fact.lod);
    out.member("bytes", fact.bytes);
    if (fact.has_range)
      out.member("min", fact.min).member("max", fact.max).member("mean", fact.mean);
    out.member("nan", fact.nan).end_object();
  }
  return out.end_array().end_object().take();
}

}  // namespace millrace::tools
