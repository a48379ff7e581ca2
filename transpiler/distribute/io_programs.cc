#include "transpiler/distribute/io_programs.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/persistable.h"
#include "framework/slice_cover.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace io_programs {
namespace {

// The slices of one var, or its copies on several servers.
using DistributedVars = std::vector<const DistributedVar*>;
using RemoteVars = std::vector<std::pair<std::string, DistributedVars>>;

constexpr const char* kTableFolder = "__lookup_table__";

RemoteVars remote_vars(const VarsDistributed& overview) {
  return overview.get_distributed_vars_by_vtypes({"Optimizer", "RemotePrefetch"});
}

std::string join_path(const std::string& directory, const std::string& name) {
  return directory.back() == '/' ? directory + name : directory + "/" + name;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (const int64_t dim : shape) out += (out.empty() ? "" : ",") + std::to_string(dim);
  return out;
}

Status check_distributed(const ProgramProperties& properties, const std::string& directory,
                         const char* action) {
  if (!properties.is_distributed) {
    return InvalidArgument("cannot {}: the program is not distributed", action);
  }
  if (directory.empty()) return InvalidArgument("cannot {}: the directory name is empty", action);
  return Ok();
}

// The slices by block_id. Errors: an id that is out of range or occurs twice.
StatusOr<std::vector<size_t>> order_by_block_id(const std::string& origin,
                                                const DistributedVars& vars) {
  constexpr size_t kFree = SIZE_MAX;
  std::vector<size_t> order(vars.size(), kFree);
  for (size_t i = 0; i < vars.size(); ++i) {
    const int64_t id = vars[i]->block_id;
    if (id < 0 || id >= static_cast<int64_t>(vars.size()) ||
        order[static_cast<size_t>(id)] != kFree) {
      return Status(StatusCode::kInvalidData,
                    fmt::format("cannot save {}: its {} slices have block_id {} twice or out of "
                                "range",
                                in_quotes(origin), vars.size(), id));
    }
    order[static_cast<size_t>(id)] = i;
  }
  return order;
}

// Order of copies, which may be slices of state that is listed as whole: as the slices of its
// parameter where that is known, else as listed. The original writes such slices as listed, also
// where servers have the slices of the parameter in another order.
std::vector<size_t> order_of_copies(const VarsDistributed& overview, const DistributedVars& vars) {
  std::vector<size_t> order(vars.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<int64_t> offsets;
  for (const DistributedVar* const var : vars) {
    for (const DistributedVar& other : overview.vars()) {
      const bool is_beside = other.origin.name == var->param && other.endpoint == var->endpoint;
      if (is_beside && other.is_slice) offsets.push_back(other.offset);
    }
  }
  if (offsets.size() == vars.size())
    std::ranges::stable_sort(order, {}, [&](size_t i) { return offsets[i]; });
  return order;
}

// Order of the slices in the file: by block_id if the var is sliced.
// Errors: a gap or an overlap, for which the original would write a broken file.
StatusOr<std::vector<size_t>> order_in_file(const VarsDistributed& overview,
                                            const std::string& origin,
                                            const DistributedVars& vars) {
  if (!vars.front()->is_slice) return order_of_copies(overview, vars);
  MILLRACE_ASSIGN_OR_RETURN(std::vector<size_t> order, order_by_block_id(origin, vars));
  std::vector<VarSlice> slices;
  for (const size_t i : order) {
    const DistributedVar& var = *vars[i];
    slices.push_back({fmt::format("'{}' on {}", var.slice.name, var.endpoint), var.offset,
                      element_count(var.slice.shape).value_or(-1),
                      static_cast<DType>(var.slice.dtype),
                      Dims(var.slice.shape.begin(), var.slice.shape.end())});
  }
  const VarFacts& whole = vars.front()->origin;
  Status status = check_slices_cover(origin, static_cast<DType>(whole.dtype), whole.shape, slices);
  if (!status.ok()) return InvalidData("cannot save {}: {}", in_quotes(origin), status.message());
  return order;
}

Status append_recv_save(Block& block, const VarsDistributed& overview, const std::string& origin,
                        const DistributedVars& vars, const std::string& directory) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<size_t> order, order_in_file(overview, origin, vars));
  std::vector<std::string> shapes;
  std::vector<std::string> local_names;
  std::vector<std::string> remote_names;
  std::vector<std::string> endpoints;
  for (const size_t i : order) {
    const DistributedVar& var = *vars[i];
    if (var.endpoint.empty()) {
      return InvalidData("cannot save {}: its slice {} has no endpoint", in_quotes(origin),
                         in_quotes(var.slice.name));
    }
    shapes.push_back(shape_text(var.slice.shape));
    // The number is the position in the overview, not in the file.
    local_names.push_back(var.slice.name + ".slice." + std::to_string(i));
    remote_names.push_back(var.slice.name);
    endpoints.push_back(var.endpoint);
  }
  Op& op = block.append_op("recv_save");
  op.set_int("trainer_id", 0)
      .set_attr("shape", AttrValue::of_longs(vars.front()->origin.shape))
      .set_strings("slice_shapes", std::move(shapes))
      .set_strings("slice_varnames", std::move(local_names))
      .set_strings("remote_varnames", std::move(remote_names))
      .set_strings("endpoints", std::move(endpoints))
      .set_string("file_path", join_path(directory, origin));
  finish(op, role::kForward);
  return Ok();
}

VarSpec loaded_spec(const VarFacts& facts) {
  VarSpec spec = VarSpec::tensor(static_cast<DType>(facts.dtype), facts.shape);
  spec.kind = static_cast<VarKind>(facts.type);
  if (spec.kind == VarKind::kSelectedRows) spec.form = TensorForm::kSelectedRows;
  spec.persistable = true;
  return spec;
}

}  // namespace
}  // namespace io_programs

std::vector<const Var*> locally_saved_vars(const Program& trainer, const VarsDistributed& overview,
                                           const ProgramProperties& properties) {
  std::set<std::string> taken{properties.distributed_lookup_table};
  for (const auto& [origin, vars] : io_programs::remote_vars(overview)) taken.insert(origin);
  std::vector<const Var*> out;
  for (const Block& block : trainer.blocks()) {
    for (const Var& var : block.vars()) {
      if (!is_persistable(var) || var.kind() == VarKind::kRaw) continue;
      if (taken.insert(var.name().str()).second) out.push_back(&var);
    }
  }
  return out;
}

StatusOr<SavePrograms> make_save_programs(const Program& trainer, const VarsDistributed& overview,
                                          const ProgramProperties& properties,
                                          const std::string& directory) {
  using namespace io_programs;
  MILLRACE_RETURN_IF_ERROR(check_distributed(properties, directory, "save persistable vars"));
  SavePrograms out;
  for (const Var* const var : locally_saved_vars(trainer, overview, properties)) {
    out.local_vars.push_back(var->name().str());
  }
  if (!properties.is_chief) return out;
  const RemoteVars remote = remote_vars(overview);
  if (!remote.empty()) {
    auto program = Program::create();
    for (const auto& [origin, vars] : remote) {
      MILLRACE_RETURN_IF_ERROR(
          append_recv_save(program->root(), overview, origin, vars, directory));
    }
    out.remote.push_back(std::move(program));
  }
  if (!properties.distributed_lookup_table.empty()) {
    auto program = Program::create();
    Op& notify = program->root().append_op("checkpoint_notify");
    notify.set_strings("epmap", properties.endpoints)
        .set_string("dir", join_path(directory, kTableFolder))
        .set_string("lookup_table", properties.distributed_lookup_table);
    finish(notify, role::kForward);
    out.remote.push_back(std::move(program));
  }
  return out;
}

StatusOr<std::unique_ptr<Program>> make_fetch_program(const VarsDistributed& overview,
                                                      const std::vector<std::string>& names,
                                                      const std::string& directory) {
  using namespace io_programs;
  if (names.empty()) return std::unique_ptr<Program>();
  auto program = Program::create();
  for (const std::string& name : names) {
    DistributedVars vars;
    for (const DistributedVar& var : overview.vars())
      if (var.origin.name == name) vars.push_back(&var);
    if (vars.empty()) return NotFound("no server has the var {}", in_quotes(name));
    MILLRACE_RETURN_IF_ERROR(append_recv_save(program->root(), overview, name, vars, directory));
  }
  return program;
}

StatusOr<std::unique_ptr<Program>> make_load_program(const VarsDistributed& overview,
                                                     const ProgramProperties& properties,
                                                     const std::string& directory) {
  using namespace io_programs;
  MILLRACE_RETURN_IF_ERROR(check_distributed(properties, directory, "load persistable vars"));
  if (properties.ps_endpoint.empty()) {
    return InvalidArgument(
        "cannot load persistable vars: current_endpoint was not set in transpile()");
  }
  auto program = Program::create();
  Block& block = program->root();
  for (const DistributedVar* const var :
       overview.get_distributed_vars_by_ep(properties.ps_endpoint)) {
    const VarFacts& target = var->is_slice ? var->slice : var->origin;
    block.declare(target.name, loaded_spec(target));
    Op& load = block.append_op("load").set_output("Out", target.name);
    load.set_string("file_path", join_path(directory, var->origin.name));
    if (var->is_slice) {
      load.set_attr("seek", AttrValue::of_long(var->offset));
      load.set_attr("shape", AttrValue::of_longs(target.shape));
    } else {
      load.set_attr("seek", AttrValue::of_long(-1));
    }
    finish(load, role::kForward);
  }
  // The original ends with an op that deletes whole copies. Here slices are read directly, so there
  // is nothing to delete.
  finish(block.append_op("delete_var"), role::kForward);
  return program;
}

}  // namespace millrace::transpiler
