#include "tools/inspect/params.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "io/model_folder.h"

namespace millrace::tools {
namespace {

template <typename T>
void add_range(const Tensor& tensor, ParamFacts& facts) {
  double sum = 0;
  int64_t count = 0;
  for (const T element : tensor.values<T>()) {
    const auto value = static_cast<double>(element);
    if (std::isnan(value)) {
      ++facts.nan;
      continue;
    }
    facts.min = count == 0 ? value : std::min(facts.min, value);
    facts.max = count == 0 ? value : std::max(facts.max, value);
    sum += value;
    ++count;
  }
  facts.has_range = count > 0;
  if (count > 0) facts.mean = sum / static_cast<double>(count);
}

void add_range(const Tensor& tensor, ParamFacts& facts) {
  switch (tensor.dtype()) {
    case DType::kBool:
      return add_range<bool>(tensor, facts);
    case DType::kUint8:
      return add_range<uint8_t>(tensor, facts);
    case DType::kInt8:
      return add_range<int8_t>(tensor, facts);
    case DType::kInt16:
      return add_range<int16_t>(tensor, facts);
    case DType::kInt32:
      return add_range<int32_t>(tensor, facts);
    case DType::kInt64:
      return add_range<int64_t>(tensor, facts);
    case DType::kFloat16:
      return add_range<Float16>(tensor, facts);
    case DType::kBfloat16:
      return add_range<Bfloat16>(tensor, facts);
    case DType::kFloat32:
      return add_range<float>(tensor, facts);
    case DType::kFloat64:
      return add_range<double>(tensor, facts);
    default:
      return;
  }
}

ParamFacts facts_of_params(const std::string& name, const Tensor& tensor) {
  ParamFacts facts;
  facts.name = name;
  facts.dtype = tensor.dtype();
  facts.dims.assign(tensor.dims().begin(), tensor.dims().end());
  if (!tensor.lod().empty()) facts.lod = tensor.lod().to_string();
  facts.bytes = tensor.bytes();
  add_range(tensor, facts);
  return facts;
}

StatusOr<io::ParamValues> read_values(const Program& program, const std::string& path) {
  const std::string file = std::filesystem::path(path).filename().string();
  for (const io::ParamSpec& spec : io::persistables_of(program)) {
    if (spec.name != file || std::filesystem::is_directory(path)) continue;
    MILLRACE_ASSIGN_OR_RETURN(const io::ByteSource source, io::ByteSource::open(path));
    io::ParamValues values;
    MILLRACE_ASSIGN_OR_RETURN(values[file], io::load_param(source, spec));
    return values;
  }
  return io::read_parameters(path, program);
}

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

void add_param_facts(const std::string& name, const Value& value, std::vector<ParamFacts>& facts) {
  if (const auto* const tensor = value.get_if<Tensor>())
    facts.push_back(facts_of_params(name, *tensor));
  if (const auto* const rows = value.get_if<SelectedRows>()) {
    facts.push_back(facts_of_params(name, rows->value));
    facts.back().lod = fmt::format("rows of {}", rows->height);
  }
  if (const auto* const array = value.get_if<TensorArray>()) {
    for (size_t i = 0; i < array->size(); ++i) {
      if ((*array)[i].initialized())
        facts.push_back(facts_of_params(fmt::format("{}[{}]", name, i), (*array)[i]));
    }
  }
}

StatusOr<std::vector<ParamFacts>> read_param_facts(
    const Program& program, const std::string& path,
    const std::function<bool(llvm::StringRef)>& wanted) {
  MILLRACE_ASSIGN_OR_RETURN(const io::ParamValues values, read_values(program, path));
  std::vector<ParamFacts> facts;
  for (const auto& [name, value] : values)
    if (!wanted || wanted(name)) add_param_facts(name, value, facts);
  return facts;
}

std::string params_text(const std::vector<ParamFacts>& facts) {
  std::vector<ParamsRow> rows = {
      {"var", "dtype", "dims", "lod", "bytes", "min", "max", "mean", "nan"}};
  int64_t bytes = 0;
  for (const ParamFacts& fact : facts) {
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

std::string params_json(const std::vector<ParamFacts>& facts, const std::string& path) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.params").member("version", 1);
  out.end_object().member("file", path);
  out.key("params").begin_array();
  for (const ParamFacts& fact : facts) {
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
