#include "jobs/inspect/param_facts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "io/model_folder.h"
#include "io/paths.h"

namespace millrace::jobs {
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
    if (spec.name != file || io::is_folder(path)) continue;
    MILLRACE_ASSIGN_OR_RETURN(const io::ByteSource source, io::ByteSource::open(path));
    io::ParamValues values;
    MILLRACE_ASSIGN_OR_RETURN(values[file], io::load_param(source, spec));
    return values;
  }
  return io::read_parameters(path, program);
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
  if (wanted && facts.empty())
    return NotFound("none of the {} parameters is wanted", values.size()).in_file(path);
  return facts;
}

}  // namespace millrace::jobs
