#include "ps/saving/distributed_load.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "framework/row_owner.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "ps/server/load_slices.h"
#include "ps/server/table_rows.h"
#include "transpiler/distribute/io_programs.h"

namespace millrace::ps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTableFolder = "__lookup_table__";

// Runs the load program of a server; its paths are relative to the folder's parent.
Status run_load_program(const transpiler::SlicesFile& slices, const std::string& endpoint,
                        const std::string& folder, Scope& scope,
                        const executor::ExecutorOptions& options) {
  transpiler::ProgramProperties properties = slices.properties;
  properties.ps_endpoint = endpoint;
  const fs::path path(folder);
  const std::string root = path.has_parent_path() ? path.parent_path().string() : ".";
  MILLRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Program> load,
      transpiler::make_load_program(slices.overview, properties, path.filename().string()));
  executor::ExecutorOptions plain = options;
  plain.optimize = false;
  const executor::Executor executor(executor::standard_runtime(root), plain);
  MILLRACE_ASSIGN_OR_RETURN(const auto prepared, executor.prepare(*load, scope));
  std::vector<Value> none;
  return prepared->run({}, {}, none);
}

Status in_table(Status status, const std::string& table, const std::string& path) {
  Location location;
  location.var = table;
  location.file = path;
  return std::move(status).at(std::move(location));
}

// Adds those rows of a file that belong to server `server`.
Status add_rows(const SelectedRows& from, int64_t server, int64_t servers, SelectedRows& to,
                std::vector<std::byte>& bytes, std::set<int64_t>& seen) {
  if (to.height == 0) to.height = from.height;
  const int64_t row_bytes = from.rows.empty() ? 0 : from.value.bytes() / from.value.dim(0);
  for (size_t i = 0; i < from.rows.size(); ++i) {
    const int64_t row = from.rows[i];
    if (server_of_row(row, servers) != server) continue;
    if (row < 0 || row >= to.height)
      return InvalidData("row {} of a table of {} rows", row, to.height);
    if (!seen.insert(row).second) return InvalidData("row {} occurs twice", row);
    to.rows.push_back(row);
    const std::byte* const begin = from.value.raw() + static_cast<int64_t>(i) * row_bytes;
    bytes.insert(bytes.end(), begin, begin + row_bytes);
  }
  return Ok();
}

// Loads the rows of one server from the files that all servers of a job wrote.
Status load_table_parts(const std::string& folder, const std::string& table, int64_t server,
                        int64_t servers, Value& to) {
  Value loaded;
  SelectedRows& rows = loaded.as<SelectedRows>();
  std::vector<std::byte> bytes;
  std::set<int64_t> seen;
  DType dtype = DType::kFloat32;
  Dims dims;
  for (int part = 0;; ++part) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string path,
                              io::path_below(folder, fmt::format("{}_{}", table, part)));
    if (!io::may_exist(path)) break;
    MILLRACE_ASSIGN_OR_RETURN(const io::ByteSource source, io::ByteSource::open(path));
    MILLRACE_ASSIGN_OR_RETURN(const Value value,
                              io::load_param(source, {table, VarKind::kSelectedRows, {}, {}}));
    const SelectedRows& from = *value.get_if<SelectedRows>();
    const bool other =
        part > 0 && (from.height != rows.height || from.value.dtype() != dtype ||
                     from.value.dims().drop_front() != llvm::ArrayRef<int64_t>(dims).drop_front());
    if (other) return in_table(InvalidData("the file belongs to another table"), table, path);
    dtype = from.value.dtype();
    dims.assign(from.value.dims().begin(), from.value.dims().end());
    if (Status status = add_rows(from, server, servers, rows, bytes, seen); !status.ok())
      return in_table(std::move(status), table, path);
  }
  const int64_t expected = rows_of_server(rows.height, server, servers);
  if (dims.empty() || static_cast<int64_t>(rows.rows.size()) != expected) {
    return in_table(
        InvalidData(
            "expected {} rows for server {} of {}, found {}: files of other servers are missing",
            expected, server, servers, rows.rows.size()),
        table, folder);
  }
  dims[0] = expected;
  MILLRACE_RETURN_IF_ERROR(rows.value.resize(dtype, dims));
  if (!bytes.empty()) std::memcpy(rows.value.raw(), bytes.data(), bytes.size());
  to = std::move(loaded);
  return Ok();
}

// The overview lists some state of sliced parameters as whole, and the load program reads all of
// it: keeps the slice that the server declares.
Status slice_whole_state(const transpiler::SlicesFile& slices, const Program& program,
                         const std::string& endpoint, Scope& scope) {
  std::map<std::string, Value> whole;
  for (const transpiler::DistributedVar* const var :
       slices.overview.get_distributed_vars_by_ep(endpoint)) {
    const Var* const declared = program.root().find_var(var->slice.name);
    Value* const loaded = scope.find(var->slice.name);
    if (var->is_slice || declared == nullptr || loaded == nullptr) continue;
    const auto* const tensor = loaded->get_if<Tensor>();
    const auto elements = element_count(declared->dims());
    if (tensor == nullptr || !elements || tensor->numel() <= *elements) continue;
    whole[var->origin.name] = std::move(*loaded);
  }
  return whole.empty() ? Ok() : load_slices(slices, program, whole, scope);
}

// Loads vars that the overview does not list, such as step counters, if they have files.
Status load_others(const transpiler::SlicesFile& slices, const Program& program,
                   const std::string& folder, Scope& scope) {
  std::set<std::string> listed{slices.properties.distributed_lookup_table};
  for (const transpiler::DistributedVar& var : slices.overview.vars())
    listed.insert({var.slice.name, var.origin.name});
  for (const Var& var : program.root().vars()) {
    const std::string name = var.name().str();
    if (!var.persistable() || var.kind() != VarKind::kLodTensor || listed.contains(name)) continue;
    const StatusOr<std::string> path = io::path_below(folder, name);
    if (!path.ok() || !io::may_exist(*path) || io::is_folder(*path)) continue;
    MILLRACE_ASSIGN_OR_RETURN(const io::ByteSource source, io::ByteSource::open(*path));
    io::ParamSpec spec{name, VarKind::kLodTensor, var.dtype(), Dims()};
    spec.dims->assign(var.dims().begin(), var.dims().end());
    MILLRACE_ASSIGN_OR_RETURN(scope.root().local(name), io::load_param(source, spec));
  }
  return Ok();
}

// The load program reads elements of slices, wherever they are in tensors of other dims.
Status check_whole_dims(const transpiler::SlicesFile& slices, const std::string& endpoint,
                        const std::string& folder) {
  for (const transpiler::DistributedVar* const var :
       slices.overview.get_distributed_vars_by_ep(endpoint)) {
    const std::string& name = var->origin.name;
    if (name == slices.properties.distributed_lookup_table) continue;
    const Dims dims(var->origin.shape.begin(), var->origin.shape.end());
    if (element_count(dims) == 1) continue;  // [] or [1]
    MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::path_below(folder, name));
    MILLRACE_ASSIGN_OR_RETURN(const io::ByteSource source, io::ByteSource::open(path));
    const io::ParamSpec spec{name, VarKind::kLodTensor, {}, dims};
    MILLRACE_RETURN_IF_ERROR(io::load_param_slice(source, spec, 0, {0}).status());
  }
  return Ok();
}

Status load_own_table(const transpiler::SlicesFile& slices, const Program& program,
                      const std::string& folder, int64_t server, Scope& scope) {
  const std::string& table = slices.properties.distributed_lookup_table;
  const auto servers = static_cast<int64_t>(slices.properties.endpoints.size());
  const std::string parts = folder + "/" + kTableFolder;
  if (io::is_folder(parts)) {
    MILLRACE_RETURN_IF_ERROR(
        load_table_parts(parts, table, server, servers, scope.root().local(table)));
    return check_loaded_table(slices, program, scope).in_file(parts);
  }
  std::map<std::string, Value> whole;
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::path_below(folder, table));
  MILLRACE_ASSIGN_OR_RETURN(const io::ByteSource source, io::ByteSource::open(path));
  MILLRACE_ASSIGN_OR_RETURN(whole[table], io::load_param(source, {table, {}, {}, {}}));
  return load_slices(slices, program, whole, scope).in_file(path);
}

}  // namespace

Status load_server_persistables(const transpiler::SlicesFile& slices, const Program& program,
                                const std::string& folder, Scope& scope,
                                const executor::ExecutorOptions& options) {
  const std::string from = io::without_slash(folder);
  MILLRACE_ASSIGN_OR_RETURN(const Op* const serve, find_serve_op(program));
  const std::string endpoint = get_attr_or(*serve, "endpoint", std::string());
  // Only file sizes are checked, because slices are read without the rest of their files.
  std::vector<std::string> names;
  for (const transpiler::DistributedVar& var : slices.overview.vars())
    names.push_back(var.origin.name);
  MILLRACE_RETURN_IF_ERROR(io::check_folder(from, names, io::CheckFiles::kSizes));
  MILLRACE_RETURN_IF_ERROR(run_load_program(slices, endpoint, from, scope, options).in_file(from));
  MILLRACE_RETURN_IF_ERROR(check_whole_dims(slices, endpoint, from));
  MILLRACE_RETURN_IF_ERROR(slice_whole_state(slices, program, endpoint, scope).in_file(from));
  MILLRACE_RETURN_IF_ERROR(load_others(slices, program, from, scope));
  if (slices.properties.distributed_lookup_table.empty()) return Ok();
  return load_own_table(slices, program, from, std::max(get_attr_or(*serve, "pserver_id", 0), 0),
                        scope);
}

}  // namespace millrace::ps
