#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/model_folder.h"
#include "io/params.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/source.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

// A table as the dense tensor that an inference program declares; rows that nobody has seen are 0.
StatusOr<Value> densify(const SelectedRows& table, const io::ParamSpec& spec) {
  const Dims& dims = *spec.dims;
  const bool fits = !dims.empty() && dims.size() == table.value.rank() &&
                    std::equal(dims.begin() + 1, dims.end(), table.value.dims().begin() + 1);
  if (!fits) {
    return InvalidData("expected rows of shape [{}], found {}", fmt::join(dims, ", "),
                       describe(table.value));
  }
  Value value;
  MILLRACE_ASSIGN_OR_RETURN(value.as<Tensor>(), Tensor::create(table.value.dtype(), dims));
  Tensor& dense = value.as<Tensor>();
  if (dense.bytes() > 0) std::memset(dense.raw(), 0, static_cast<size_t>(dense.bytes()));
  const auto row_bytes = static_cast<size_t>(dims[0] == 0 ? 0 : dense.bytes() / dims[0]);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const int64_t row = table.rows[i];
    if (row < 0 || row >= dims[0]) return InvalidData("row {}: expected 0 to {}", row, dims[0] - 1);
    std::memcpy(dense.raw() + static_cast<size_t>(row) * row_bytes,
                table.value.raw() + i * row_bytes, row_bytes);
  }
  return value;
}

Status check(const Value& value, const io::ParamSpec& spec) {
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr) return Ok();
  bool fits = !spec.dtype || *spec.dtype == tensor->dtype();
  if (spec.dims) {
    fits = fits && spec.dims->size() == tensor->rank();
    for (size_t i = 0; fits && i < tensor->rank(); ++i)
      fits = (*spec.dims)[i] == -1 || (*spec.dims)[i] == tensor->dims()[i];
  }
  if (fits) return Ok();
  return InvalidData("expected {} [{}], found {}",
                     spec.dtype ? dtype_name(*spec.dtype) : std::string_view("any"),
                     fmt::join(spec.dims.value_or(Dims()), ", "), describe(*tensor));
}

// The value of a var from the first source that has it.
StatusOr<Value> find_value(const std::vector<std::unique_ptr<TensorSource>>& sources,
                           const io::ParamSpec& spec) {
  for (const auto& source : sources) {
    const std::vector<std::string> names = source->names();
    if (!std::ranges::binary_search(names, spec.name)) continue;
    MILLRACE_ASSIGN_OR_RETURN(Value value, source->load(spec.name));
    const auto* const table = value.get_if<SelectedRows>();
    if (table != nullptr && spec.kind == VarKind::kLodTensor && spec.dims) {
      MILLRACE_ASSIGN_OR_RETURN(value, densify(*table, spec));
    }
    MILLRACE_RETURN_IF_ERROR(check(value, spec));
    return value;
  }
  return NotFound("no input has the var");
}

}  // namespace

StatusOr<int> checkpoint_export(Tool& tool, const CheckpointFlags& flags) {
  const std::string& output = tool.common().output;
  if (flags.model_dir.empty())
    return Status(StatusCode::kUsage, "export: --model-dir says where the inference program is");
  if (output.empty()) return Status(StatusCode::kUsage, "export: -o says where");
  MILLRACE_ASSIGN_OR_RETURN(const std::string model, io::find_program(flags.model_dir));
  MILLRACE_ASSIGN_OR_RETURN(const auto program, read_program(tool, model));
  CheckpointFlags plain = flags;
  if (plain.program.empty()) plain.program = model;  // of combined files
  std::vector<std::unique_ptr<TensorSource>> sources;
  for (const std::string& path : flags.paths) {
    MILLRACE_ASSIGN_OR_RETURN(auto source, open_source(tool, plain, path));
    sources.push_back(std::move(source));
  }
  std::map<std::string, Value> values;
  for (const io::ParamSpec& spec : io::persistables_of(*program)) {
    StatusOr<Value> value = find_value(sources, spec);
    if (!value.ok()) {
      Location location;
      location.var = spec.name;
      return std::move(value).status().at(std::move(location)).in_file(flags.paths[0]);
    }
    values[spec.name] = *std::move(value);
  }
  std::vector<io::NamedValue> named;
  for (const auto& [name, value] : values) named.push_back({name, &value});
  const io::SaveOptions options{.replace = tool.common().force ? Replace::kYes : Replace::kNo};
  std::error_code error;
  fs::create_directories(output, error);
  if (error) return IoError("cannot create the folder: {}", error.message()).in_file(output);
  // The program last: without it the folder is no model.
  MILLRACE_RETURN_IF_ERROR(
      flags.params_filename.empty()
          ? io::save_separate(output, named, options)
          : io::save_combined(output + "/" + fs::path(flags.params_filename).filename().string(),
                              named, options));
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes,
                            read_file(model, tool.common().max_model_bytes));
  MILLRACE_RETURN_IF_ERROR(tool.write_file(output + "/__model__", bytes));
  tool.log(LogLevel::kInfo, fmt::format("{} vars of {} inputs", values.size(), sources.size()));
  return kDone;
}

}  // namespace millrace::tools
