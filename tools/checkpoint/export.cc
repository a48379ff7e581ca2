#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/checkpoint/arrays.h"
#include "io/model_folder.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "jobs/checkpoint/staged_folder.h"
#include "jobs/checkpoint/write_values.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/source.h"
#include "tools/checkpoint/write_params.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

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

using Sources = std::vector<std::unique_ptr<jobs::TensorSource>>;

// The variables of the program, each from the first source that has it. Holds one value in memory
// at a time.
class Parts {
 public:
  // Errors: kNotFound for a variable that no source has.
  static StatusOr<Parts> find(const Program& program, const Sources& sources) {
    Parts parts;
    for (io::ParamSpec& spec : io::persistables_of(program)) {
      const auto has = [&](const std::unique_ptr<jobs::TensorSource>& source) {
        return std::ranges::binary_search(source->names(), spec.name);
      };
      const auto source = std::ranges::find_if(sources, has);
      if (source == sources.end()) return of_var(NotFound("no input has the variable"), spec.name);
      parts.names_.push_back(spec.name);
      std::string name = spec.name;
      parts.places_.emplace(std::move(name), Place{std::move(spec), source->get()});
    }
    return parts;
  }

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  [[nodiscard]] StatusOr<Value> load(const std::string& name, ByteProgress& progress) const {
    const Place& place = places_.at(name);
    StatusOr<Value> value = place.source->load(name);
    if (!value.ok()) return value;
    const auto* const table = value->get_if<SelectedRows>();
    if (table != nullptr && place.spec.kind == VarKind::kLodTensor && place.spec.dims) {
      value = densify(*table, place.spec);
      if (!value.ok()) return of_var(std::move(value).status(), name);
    }
    if (Status status = check_export(*value, place.spec); !status.ok())
      return of_var(std::move(status), name);
    progress.add(io::tensor_bytes(*value));
    return value;
  }

 private:
  struct Place {
    io::ParamSpec spec;
    const jobs::TensorSource* source;
  };
  static Status of_var(Status status, const std::string& name) {
    Location location = status.location();
    location.var = name;
    return std::move(status).at(std::move(location));
  }

  std::vector<std::string> names_;  // in byte order, as in the combined files of the original
  std::map<std::string, Place> places_;
};

// Writes the parameters first and the program last, because a folder without it is not a model.
Status write_model(Tool& tool, const CheckpointFlags& flags, const Parts& parts,
                   const std::string& program, uint64_t bytes) {
  const std::string& output = tool.common().output;
  const Replace replace = tool.common().force ? Replace::kYes : Replace::kNo;
  MILLRACE_ASSIGN_OR_RETURN(jobs::StagedFolder staged, jobs::StagedFolder::create(output));
  const std::string& folder = staged.path();
  {
    ByteProgress progress = progress_of(tool, flags, "export", bytes);
    const auto load = [&](const std::string& name) -> StatusOr<Value> {
      MILLRACE_RETURN_IF_ERROR(check_stopped(flags));
      return parts.load(name, progress);
    };
    MILLRACE_RETURN_IF_ERROR(
        flags.params_filename.empty()
            ? jobs::write_separate(folder, parts.names(), load, replace, flags.sync)
            : jobs::write_combined(
                  folder + "/" + fs::path(flags.params_filename).filename().string(), parts.names(),
                  load, replace, flags.sync));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string text,
                            read_file(program, tool.common().max_model_bytes));
  MILLRACE_RETURN_IF_ERROR(tool.write_file(folder + "/__model__", text));
  MILLRACE_RETURN_IF_ERROR(staged.commit(flags.sync));
  std::vector<std::string> files = {"__model__"};
  if (flags.params_filename.empty()) {
    files.insert(files.end(), parts.names().begin(), parts.names().end());
  } else {
    files.push_back(fs::path(flags.params_filename).filename().string());
  }
  return io::write_folder_manifest(output, files, {}, flags.sync);
}

}  // namespace

StatusOr<int> checkpoint_export(Tool& tool, const CheckpointFlags& flags) {
  const std::string& output = tool.common().output;
  if (flags.model_dir.empty())
    return Status(StatusCode::kUsage,
                  "export: expected --model-dir with the folder of the inference program");
  if (output.empty())
    return Status(StatusCode::kUsage, "export: expected -o with the folder of the output");
  MILLRACE_ASSIGN_OR_RETURN(const std::string model, io::find_program(flags.model_dir));
  MILLRACE_ASSIGN_OR_RETURN(const auto program, read_program(tool, model));
  CheckpointFlags plain = flags;
  if (plain.program.empty()) plain.program = model;  // program whose variables combined files have
  Sources sources;
  uint64_t bytes = 0;
  for (const std::string& path : flags.paths) {
    MILLRACE_ASSIGN_OR_RETURN(auto source, open_source(tool, plain, path));
    bytes += source->bytes();
    sources.push_back(std::move(source));
  }
  StatusOr<Parts> parts = Parts::find(*program, sources);
  if (!parts.ok()) return std::move(parts).status().in_file(flags.paths[0]);
  if (flags.dry_run) {
    MILLRACE_RETURN_IF_ERROR(check_writable(tool, {output + "/__model__"}));
  } else {
    MILLRACE_RETURN_IF_ERROR(write_model(tool, flags, *parts, model, bytes));
  }
  const WriteReport report{"export", sources.front()->form(), "model", parts->names().size(), bytes,
                           {}};
  MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
  return kDone;
}

}  // namespace millrace::tools
