#include "io/model_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/persistable.h"
#include "io/npz.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "io/persistables.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string in(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

Status check_folder(const std::string& folder) {
  if (is_folder(folder)) return Ok();
  std::error_code error;
  if (!fs::exists(folder, error)) return NotFound("no such folder").in_file(folder);
  return InvalidData("expected a folder").in_file(folder);
}

// Names of the regular files of a folder that have the suffix, in order.
StatusOr<std::vector<std::string>> files_ending(const std::string& folder,
                                                const std::string& suffix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(suffix) && is_file(in(folder, name))) names.push_back(name);
  }
  if (error) return IoError("cannot list: {}", error.message()).in_file(folder);
  std::ranges::sort(names);
  return names;
}

// The only file of a folder that has the suffix; empty if there is none.
StatusOr<std::string> only_file_ending(const std::string& folder, const std::string& suffix,
                                       const char* flag) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_ending(folder, suffix));
  if (names.empty()) return std::string();
  if (names.size() == 1) return in(folder, names[0]);
  return InvalidData("expected one *{}, found {}", suffix, fmt::join(names, ", "))
      .in_file(folder)
      .with_hint(fmt::format("use {} to select one", flag));
}

StatusOr<std::string> named_file(const std::string& folder, const std::string& filename) {
  MILLRACE_ASSIGN_OR_RETURN(std::string path, path_below(folder, filename));
  if (!is_file(path)) return NotFound("no such file").in_file(path);
  return path;
}

// True for an npz archive, detected by the magic number of zip.
StatusOr<bool> is_archive(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const ByteSource source, ByteSource::open(path));
  std::array<std::byte, 4> magic{};
  if (source.size() < magic.size()) return false;
  MILLRACE_RETURN_IF_ERROR(source.read(0, magic).in_file(path));
  return magic[0] == std::byte{'P'} && magic[1] == std::byte{'K'};
}

// Persistable vars of the given kinds in all blocks, sorted by name.
std::vector<ParamSpec> persistables(const Program& program, llvm::ArrayRef<VarKind> kinds) {
  return specs_where(program, [kinds](const Var& var) {
    return var.persistable() && llvm::is_contained(kinds, var.kind());
  });
}

// Dims without those of extent 1: numpy and old programs disagree on how to write a single number.
Dims squeezed(llvm::ArrayRef<int64_t> dims) {
  Dims kept;
  for (const int64_t dim : dims)
    if (dim != 1) kept.push_back(dim);
  return kept;
}

// The number of rows of a sparse table grows, so only their width is checked.
Status fit_rows(const Tensor& rows, const Dims& declared) {
  bool fits = rows.rank() == declared.size();
  for (size_t i = 1; fits && i < declared.size(); ++i)
    fits = declared[i] == -1 || declared[i] == rows.dims()[i];
  return fits ? Ok()
              : InvalidData("expected rows of [{}], found {}", fmt::join(declared, ", "),
                            describe(rows));
}

// Sets the dims of an array to the declared ones; they may differ in axes of extent 1.
Status fit_dims(Tensor& tensor, const Dims& declared) {
  bool fits = tensor.rank() == declared.size();
  for (size_t i = 0; fits && i < declared.size(); ++i)
    fits = declared[i] == -1 || declared[i] == tensor.dims()[i];
  if (fits) return Ok();
  if (squeezed(tensor.dims()) != squeezed(declared)) {
    return InvalidData("expected dims [{}], found {}", fmt::join(declared, ", "), describe(tensor));
  }
  tensor.set_dims(declared);
  return Ok();
}

}  // namespace

Status fit_declared(Value& value, const ParamSpec& spec) {
  auto* tensor = value.get_if<Tensor>();
  auto* const rows = value.get_if<SelectedRows>();
  if (rows != nullptr) tensor = &rows->value;
  if (value.kind() != spec.kind)
    return InvalidData("expected {}, found {}", var_kind_name(spec.kind), describe(value));
  if (tensor == nullptr) return Ok();  // a tensor array
  if (spec.dtype && tensor->dtype() != *spec.dtype)
    return InvalidData("expected dtype {}, found {}", dtype_name(*spec.dtype), describe(*tensor));
  if (!spec.dims) return Ok();
  return rows != nullptr ? fit_rows(*tensor, *spec.dims) : fit_dims(*tensor, *spec.dims);
}

namespace {

StatusOr<ParamValues> load_archive(const std::string& path, const Program& program) {
  MILLRACE_ASSIGN_OR_RETURN(ParamValues all, read_values(path));
  ParamValues values;
  const std::vector<ParamSpec> specs = persistables(
      program, {VarKind::kLodTensor, VarKind::kSelectedRows, VarKind::kLodTensorArray});
  for (const ParamSpec& spec : specs) {
    const auto found = all.find(spec.name);
    if (found == all.end()) continue;
    if (Status status = fit_declared(found->second, spec); !status.ok()) {
      Location location;
      location.file = path;
      location.var = spec.name;
      return std::move(status).at(std::move(location));
    }
    values[spec.name] = std::move(found->second);
  }
  if (values.empty() && !specs.empty() && !all.empty()) {
    return InvalidData("expected persistable vars of the program, such as '{}'; found '{}'",
                       specs.front().name, all.begin()->first)
        .in_file(path);
  }
  return values;
}

}  // namespace

StatusOr<std::string> find_program(const std::string& folder, const std::string& filename) {
  MILLRACE_RETURN_IF_ERROR(check_folder(folder));
  if (!filename.empty()) return named_file(folder, filename);
  if (std::string path = in(folder, "__model__"); is_file(path)) return path;
  MILLRACE_ASSIGN_OR_RETURN(std::string path, only_file_ending(folder, ".pdmodel", "--program"));
  if (!path.empty()) return path;
  return NotFound("no program: expected __model__ or a *.pdmodel file").in_file(folder);
}

StatusOr<std::string> find_params(const std::string& folder, const std::string& program_path,
                                  const Program& program, const std::string& filename) {
  MILLRACE_RETURN_IF_ERROR(check_folder(folder));
  if (!filename.empty()) return named_file(folder, filename);
  const std::vector<ParamSpec> specs = persistables_of(program);
  const auto is_var = [&](const std::string& path) {
    return std::ranges::any_of(
        specs, [&](const ParamSpec& spec) { return in(folder, spec.name) == path; });
  };
  std::vector<std::string> candidates;
  if (const fs::path path(program_path); path.extension() == ".pdmodel")
    candidates.push_back(in(folder, path.stem().string() + ".pdiparams"));
  candidates.push_back(in(folder, "__params__"));
  candidates.push_back(in(folder, "params"));
  for (const std::string& path : candidates)
    if (is_file(path) && !is_var(path)) return path;
  MILLRACE_ASSIGN_OR_RETURN(std::string path,
                            only_file_ending(folder, ".pdiparams", "--params-filename"));
  return path.empty() || is_var(path) ? folder : path;
}

std::vector<ParamSpec> persistables_of(const Program& program) {
  return persistables(program, {VarKind::kLodTensor, VarKind::kSelectedRows});
}

StatusOr<ParamValues> read_parameters(const std::string& path, const Program& program,
                                      const LoadOptions& options) {
  const std::vector<ParamSpec> specs = persistables_of(program);
  if (is_folder(path)) {
    MILLRACE_RETURN_IF_ERROR(check_folder(path, names_of(specs), CheckFiles::kBytes));
    return load_separate(path, specs, options);
  }
  MILLRACE_ASSIGN_OR_RETURN(const bool archive, is_archive(path));
  if (archive) return load_archive(path, program);
  MILLRACE_RETURN_IF_ERROR(check_file(path, names_of(specs)));
  MILLRACE_ASSIGN_OR_RETURN(const ByteSource source, ByteSource::open(path));
  return load_combined(source, specs, options);
}

Status load_parameters(const std::string& path, const Program& program, Scope& scope,
                       const LoadOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(ParamValues values, read_parameters(path, program, options));
  for (auto& [name, value] : values) scope.local(name) = std::move(value);
  return Ok();
}

Status save_parameters(const std::string& path, const Program& program, const Scope& scope,
                       const SaveOptions& options) {
  if (Status status = check_has_files(scope, program, is_persistable); !status.ok())
    return std::move(status).in_file(path);
  std::vector<NamedValue> values;
  const std::vector<ParamSpec> specs = persistables_of(program);
  for (const ParamSpec& spec : specs) {
    const Value* const value = scope.find(spec.name);
    if (value == nullptr || !value->initialized()) {
      Location location;
      location.file = path;
      location.var = spec.name;
      return NotFound("the var has no value to save").at(std::move(location));
    }
    values.push_back({spec.name, value});
  }
  if (values.empty()) return Ok();
  if (is_folder(path) || path.ends_with('/')) {
    MILLRACE_RETURN_IF_ERROR(save_separate(path, values, options));
    return write_folder_manifest(path, names_of(specs), {}, options.sync);
  }
  MILLRACE_RETURN_IF_ERROR(save_combined(path, values, options));
  return write_file_manifest(path, names_of(specs), options.sync);
}

}  // namespace millrace::io
