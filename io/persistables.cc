#include "io/persistables.h"

#include <map>
#include <utility>

#include "framework/base/errors.h"
#include "framework/persistable.h"
#include "io/byte_source.h"
#include "io/params_manifest.h"
#include "io/paths.h"

namespace millrace::io {
namespace {

bool has_file(const Var& var) {
  return var.kind() == VarKind::kLodTensor || var.kind() == VarKind::kSelectedRows;
}

StatusOr<std::vector<NamedValue>> values_of(const Scope& scope,
                                            const std::vector<ParamSpec>& specs) {
  std::vector<NamedValue> values;
  for (const ParamSpec& spec : specs) {
    const Value* const value = scope.find(spec.name);
    if (value == nullptr || !value->initialized()) {
      Location location;
      location.var = spec.name;
      return NotFound("the var has no value to save").at(std::move(location));
    }
    values.push_back({spec.name, value});
  }
  return values;
}

void put_persistables(ParamValues values, Scope& scope) {
  for (auto& [name, value] : values) scope.local(name) = std::move(value);
}

}  // namespace

std::vector<ParamSpec> specs_where(const Program& program, const VarPredicate& wanted) {
  std::map<std::string, ParamSpec> by_name;
  for (const Block& block : program.blocks()) {
    for (const Var& var : block.vars()) {
      if (!wanted(var)) continue;
      ParamSpec spec;
      spec.name = var.name().str();
      spec.kind = var.kind();
      if (var.spec().has_tensor()) {
        spec.dtype = var.dtype();
        spec.dims.emplace(var.dims().begin(), var.dims().end());
      }
      by_name.try_emplace(spec.name, std::move(spec));
    }
  }
  std::vector<ParamSpec> specs;
  for (auto& [name, spec] : by_name) specs.push_back(std::move(spec));
  return specs;
}

std::vector<ParamSpec> vars_where(const Program& program, const VarPredicate& wanted) {
  return specs_where(program, [&](const Var& var) { return has_file(var) && wanted(var); });
}

Status check_has_files(const Scope& scope, const Program& program, const VarPredicate& wanted) {
  for (const ParamSpec& spec : specs_where(program, [&](const Var& var) {
         return var.kind() == VarKind::kLodTensorArray && wanted(var);
       })) {
    const Value* const value = scope.find(spec.name);
    if (value == nullptr || !value->initialized()) continue;
    Location location;
    location.var = spec.name;
    return Status(StatusCode::kUsage,
                  "expected tensors and selected rows to save, found a tensor array, which files "
                  "of parameters cannot hold")
        .at(std::move(location))
        .with_hint("a checkpoint holds arrays");
  }
  return Ok();
}

StatusOr<size_t> save_vars(const Scope& scope, const Program& program, const std::string& folder,
                           const VarPredicate& wanted, const SaveVarsOptions& options) {
  if (Status status = check_has_files(scope, program, wanted); !status.ok())
    return std::move(status).in_file(folder);
  const std::vector<ParamSpec> specs = vars_where(program, wanted);
  if (specs.empty()) return size_t{0};
  StatusOr<std::vector<NamedValue>> values = values_of(scope, specs);
  if (!values.ok()) return std::move(values).status().in_file(folder);
  if (options.filename.empty()) {
    MILLRACE_RETURN_IF_ERROR(save_separate(folder, *values, options.save));
    if (options.manifest) {
      MILLRACE_RETURN_IF_ERROR(
          write_folder_manifest(folder, names_of(specs), {}, options.save.sync));
    }
  } else {
    MILLRACE_ASSIGN_OR_RETURN(const std::string path, make_path_below(folder, options.filename));
    MILLRACE_RETURN_IF_ERROR(save_combined(path, *values, options.save));
    if (options.manifest)
      MILLRACE_RETURN_IF_ERROR(write_file_manifest(path, names_of(specs), options.save.sync));
  }
  return specs.size();
}

StatusOr<std::string> vars_to_memory(const Scope& scope, const Program& program,
                                     const VarPredicate& wanted) {
  MILLRACE_RETURN_IF_ERROR(check_has_files(scope, program, wanted));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<NamedValue> values,
                            values_of(scope, vars_where(program, wanted)));
  return combined_bytes(values);
}

StatusOr<size_t> save_persistables(const Scope& scope, const Program& program,
                                   const std::string& folder, const SaveVarsOptions& options) {
  return save_vars(scope, program, folder, is_persistable, options);
}

StatusOr<std::string> persistables_to_memory(const Scope& scope, const Program& program) {
  return vars_to_memory(scope, program, is_persistable);
}

Status load_vars(Scope& scope, const Program& program, const std::string& folder,
                 const VarPredicate& wanted, const std::string& filename,
                 const LoadOptions& options) {
  const std::vector<ParamSpec> specs = vars_where(program, wanted);
  if (filename.empty()) {
    MILLRACE_RETURN_IF_ERROR(check_folder(folder, names_of(specs), CheckFiles::kBytes));
    MILLRACE_ASSIGN_OR_RETURN(ParamValues values, load_separate(folder, specs, options));
    put_persistables(std::move(values), scope);
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, path_below(folder, filename));
  MILLRACE_RETURN_IF_ERROR(check_file(path, names_of(specs)));
  MILLRACE_ASSIGN_OR_RETURN(const ByteSource source, ByteSource::open(path));
  MILLRACE_ASSIGN_OR_RETURN(ParamValues values, load_combined(source, specs, options));
  put_persistables(std::move(values), scope);
  return Ok();
}

Status vars_from_memory(Scope& scope, const Program& program, std::string_view bytes,
                        const VarPredicate& wanted, const LoadOptions& options) {
  const ByteSource source = ByteSource::of_memory(bytes, "parameters in memory");
  MILLRACE_ASSIGN_OR_RETURN(ParamValues values,
                            load_combined(source, vars_where(program, wanted), options));
  put_persistables(std::move(values), scope);
  return Ok();
}

Status load_persistables(Scope& scope, const Program& program, const std::string& folder,
                         const std::string& filename, const LoadOptions& options) {
  return load_vars(scope, program, folder, is_persistable, filename, options);
}

Status persistables_from_memory(Scope& scope, const Program& program, std::string_view bytes,
                                const LoadOptions& options) {
  return vars_from_memory(scope, program, bytes, is_persistable, options);
}

}  // namespace millrace::io
