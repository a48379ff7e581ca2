#include "jobs/checkpoint/export_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/checkpoint/arrays.h"
#include "io/model_folder.h"
#include "io/params_manifest.h"
#include "jobs/checkpoint/compare.h"
#include "jobs/checkpoint/staged_folder.h"
#include "jobs/checkpoint/write_values.h"

namespace millrace::jobs {
namespace {

// Converts a table to the dense tensor that an inference program declares; rows that the table does
// not have are 0.
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

Status check_export(const Value& value, const io::ParamSpec& spec) {
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

Status about_var(Status status, const std::string& name) {
  Location location = status.location();
  location.var = name;
  return std::move(status).at(std::move(location));
}

using Sources = std::vector<std::unique_ptr<TensorSource>>;

// A variable that several sources have is the same in all of them.
Status check_equal(const Sources& sources, const std::vector<std::string>& names) {
  const auto is_read = [&](llvm::StringRef name) {
    return std::ranges::binary_search(names, name.str());
  };
  for (size_t b = 1; b < sources.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      const std::vector<std::string> held = sources[a]->names();
      const auto both = sources[b]->names();
      CompareOptions options;
      options.wanted = [&](llvm::StringRef name) {
        return is_read(name) && std::ranges::binary_search(held, name.str()) &&
               std::ranges::binary_search(both, name.str());
      };
      if (std::ranges::none_of(both, options.wanted)) continue;
      MILLRACE_ASSIGN_OR_RETURN(const SourceComparison found,
                                compare_sources(*sources[a], *sources[b], options));
      if (found.differences.empty()) continue;
      return about_var(InvalidData("inputs {} and {} have different values", a + 1, b + 1),
                       found.differences.front().name);
    }
  }
  return Ok();
}

}  // namespace

StatusOr<ModelValues> ModelValues::find(const Program& program,
                                        const std::vector<std::unique_ptr<TensorSource>>& sources) {
  ModelValues values;
  for (io::ParamSpec& spec : io::persistables_of(program)) {
    const auto has = [&](const std::unique_ptr<TensorSource>& source) {
      return std::ranges::binary_search(source->names(), spec.name);
    };
    const auto source = std::ranges::find_if(sources, has);
    if (source == sources.end()) return about_var(NotFound("no input has the variable"), spec.name);
    values.names_.push_back(spec.name);
    std::string name = spec.name;
    values.places_.emplace(std::move(name), Place{std::move(spec), source->get()});
  }
  MILLRACE_RETURN_IF_ERROR(check_equal(sources, values.names_));
  return values;
}

StatusOr<Value> ModelValues::load(const std::string& name) const {
  const Place& place = places_.at(name);
  StatusOr<Value> value = place.source->load(name);
  if (!value.ok()) return value;
  const auto* const table = value->get_if<SelectedRows>();
  if (table != nullptr && place.spec.kind == VarKind::kLodTensor && place.spec.dims) {
    value = densify(*table, place.spec);
    if (!value.ok()) return about_var(std::move(value).status(), name);
  }
  if (Status status = check_export(*value, place.spec); !status.ok())
    return about_var(std::move(status), name);
  return value;
}

// Writes the parameters first and the program last, because a folder without it is not a model.
Status export_model(const ModelValues& values, const std::string& program,
                    int64_t max_program_bytes, const std::string& params_filename,
                    const std::string& output, const WriteOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(StagedFolder staged, StagedFolder::create(output));
  const std::string& folder = staged.path();
  const std::string params = std::filesystem::path(params_filename).filename().string();
  const auto load = [&](const std::string& name) -> StatusOr<Value> {
    MILLRACE_RETURN_IF_ERROR(options.proceed());
    StatusOr<Value> value = values.load(name);
    if (value.ok()) options.progress(io::tensor_bytes(*value));
    return value;
  };
  MILLRACE_RETURN_IF_ERROR(
      params_filename.empty()
          ? write_separate(folder, values.names(), load, options.replace, options.sync)
          : write_combined(folder + "/" + params, values.names(), load, options.replace,
                           options.sync));
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(program, max_program_bytes));
  MILLRACE_RETURN_IF_ERROR(write_file_atomically(folder + "/__model__", text, options.replace));
  MILLRACE_RETURN_IF_ERROR(staged.commit(options.sync));
  std::vector<std::string> files = {"__model__"};
  if (params_filename.empty()) {
    files.insert(files.end(), values.names().begin(), values.names().end());
  } else {
    files.push_back(params);
  }
  return io::write_folder_manifest(output, files, {}, options.sync);
}

}  // namespace millrace::jobs
