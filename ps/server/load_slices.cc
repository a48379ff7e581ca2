#include "ps/server/load_slices.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "framework/row_owner.h"
#include "framework/tensor/join_rows.h"
#include "ps/client/gather.h"
#include "ps/server/table_rows.h"
#include "ps/values.h"

namespace millrace::ps {
namespace {

using transpiler::DistributedVar;
using transpiler::SlicesFile;

int64_t elements_in(llvm::ArrayRef<int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

// Dims of a single element may be written as [] or [1].
bool has_dims(const Tensor& tensor, llvm::ArrayRef<int64_t> dims) {
  return tensor.dims() == dims || (tensor.numel() == 1 && elements_in(dims) == 1);
}

Status misfit_slice(const std::string& name, const Value& value, const std::string& expected) {
  Location place;
  place.var = name;
  return InvalidData("expected {}, found {}", expected, describe(value)).at(std::move(place));
}

// The parameter that the server's program updates with some state, as the overview lists it; null
// if no op does. Errors: kInvalidData for state of several parameters.
StatusOr<const DistributedVar*> param_updated_with(const Program& program, const SlicesFile& slices,
                                                   const DistributedVar& state) {
  const DistributedVar* param = nullptr;
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      const llvm::StringRef name = op.first_input("Param");
      if (name.empty() || !op.reads(state.slice.name)) continue;
      const DistributedVar* const found = slices.overview.get_distributed_var_by_slice(name.str());
      if (found == nullptr || found->endpoint != state.endpoint || found == param) continue;
      if (param != nullptr)
        return InvalidData("'{}' is state of '{}' and of '{}'", state.origin.name,
                           param->slice.name, found->slice.name);
      param = found;
    }
  }
  return param;
}

// Offset of a slice of a variable. Some accumulators of split parameters are listed as whole, but
// have the size of their parameter's slice.
StatusOr<int64_t> offset_of(const SlicesFile& slices, const DistributedVar& entry,
                            const Program& program, int64_t elements, int64_t whole) {
  if (entry.is_slice || elements == whole) return entry.offset;
  MILLRACE_ASSIGN_OR_RETURN(const DistributedVar* beside,
                            param_updated_with(program, slices, entry));
  if (beside == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(
        beside, slice_beside_param(transpiler::slices_by_origin(slices.overview), entry));
  }
  if (beside != nullptr && element_count(beside->slice.shape) == elements) return beside->offset;
  return InvalidData(
      "the server has {} of the {} elements of '{}', and no var beside it is split "
      "that way",
      elements, whole, entry.origin.name);
}

Status load_slice(const SlicesFile& slices, const DistributedVar& entry, const Program& program,
                  const Value& whole, Scope& scope) {
  const Var* const var = program.root().find_var(entry.slice.name);
  if (var == nullptr) return Ok();
  const auto* const tensor = whole.get_if<Tensor>();
  if (tensor == nullptr) return misfit_slice(entry.origin.name, whole, "a dense tensor");
  const llvm::ArrayRef<int64_t> origin(entry.origin.shape);
  if (!has_dims(*tensor, origin))
    return misfit_slice(entry.origin.name, whole,
                        fmt::format("{} [{}]", dtype_name(var->dtype()), fmt::join(origin, ", ")));
  const Dims dims(var->dims().begin(), var->dims().end());
  const int64_t elements = elements_in(dims);
  MILLRACE_ASSIGN_OR_RETURN(const int64_t offset,
                            offset_of(slices, entry, program, elements, tensor->numel()));
  if (tensor->dtype() != var->dtype() || offset < 0 || offset + elements > tensor->numel()) {
    return misfit_slice(entry.origin.name, whole,
                        fmt::format("{} with elements {} to {}", dtype_name(var->dtype()), offset,
                                    offset + elements));
  }
  auto& to = scope.root().local(entry.slice.name).as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(to.resize(tensor->dtype(), dims));
  std::memcpy(to.raw(), tensor->raw() + offset * dtype_size(tensor->dtype()),
              static_cast<size_t>(to.bytes()));
  return Ok();
}

// Rows of the whole table: a server declares only its own, but also the gradient, whose rows have
// the numbers of the whole table. 0: not known.
int64_t table_height(const Program& program, const std::string& table) {
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      if (op.first_input("Param") != table) continue;
      const Var* const grad = block.find_var_recursive(op.first_input("Grad"));
      if (grad != nullptr && grad->spec().has_tensor() && !grad->dims().empty())
        return std::max<int64_t>(grad->dims()[0], 0);
    }
  }
  return 0;
}

// Errors: kInvalidData for rows of another type or width, or another number of them, than the
// program declares, as far as it does. \param rows  one below the other
Status check_table_rows(const Program& program, const std::string& table, const Value& value,
                        const Tensor& rows, int64_t count) {
  const Var* const var = program.root().find_var(table);
  const int64_t height = table_height(program, table);
  if (var == nullptr || !var->spec().has_tensor() || var->dims().size() < 2) return Ok();
  const auto width = var->dims().drop_front();
  if ((height <= 0 || count == height) && rows.dtype() == var->dtype() &&
      rows.dims().drop_front() == width)
    return Ok();
  return misfit_slice(table, value,
                      fmt::format("a table of {} rows of {} [{}]",
                                  height > 0 ? std::to_string(height) : "any number of",
                                  dtype_name(var->dtype()), fmt::join(width, ", ")));
}

Status load_table_rows(const SlicesFile& slices, const Program& program, const Op& serve,
                       const Value& whole, Scope& scope) {
  const std::string& name = slices.properties.distributed_lookup_table;
  const auto* const table = whole.get_if<Tensor>();
  if (table == nullptr || table->rank() == 0) return misfit_slice(name, whole, "a table of rows");
  MILLRACE_RETURN_IF_ERROR(check_table_rows(program, name, whole, *table, table->dim(0)));
  const auto servers = static_cast<int64_t>(slices.properties.endpoints.size());
  const int64_t server = std::max(get_attr_or(serve, "pserver_id", 0), 0);
  auto& to = scope.root().local(name).as<SelectedRows>();
  to.height = table->dim(0);
  to.rows = first_rows_of_server(rows_of_server(to.height, server, servers), server, servers);
  MILLRACE_RETURN_IF_ERROR(resize_rows(*table, static_cast<int64_t>(to.rows.size()), to.value));
  const int64_t bytes = to.height == 0 ? 0 : table->bytes() / to.height;
  for (size_t i = 0; i < to.rows.size(); ++i) {
    std::memcpy(to.value.raw() + static_cast<int64_t>(i) * bytes, table->raw() + to.rows[i] * bytes,
                static_cast<size_t>(bytes));
  }
  return Ok();
}

}  // namespace

StatusOr<const Op*> find_serve_op(const Program& program) {
  for (const Op& op : program.root().ops()) {
    if (op.type() == "listen_and_serv" || op.type() == "fl_listen_and_serv" ||
        op.type() == "heter_listen_and_serv")
      return &op;
  }
  return InvalidProgram("the program has no listen_and_serv, so it is not a server program");
}

Status load_slices(const SlicesFile& slices, const Program& program,
                   const std::map<std::string, Value>& whole, Scope& scope) {
  MILLRACE_ASSIGN_OR_RETURN(const Op* const serve, find_serve_op(program));
  const std::string endpoint = get_attr_or(*serve, "endpoint", std::string());
  std::set<std::string> done;
  const std::string& table = slices.properties.distributed_lookup_table;
  for (const DistributedVar* const entry : slices.overview.get_distributed_vars_by_ep(endpoint)) {
    const auto found = whole.find(entry->origin.name);
    if (found == whole.end() || entry->origin.name == table) continue;
    MILLRACE_RETURN_IF_ERROR(load_slice(slices, *entry, program, found->second, scope));
    done.insert(entry->slice.name);
  }
  for (const auto& [name, value] : whole) {
    const Var* const var = program.root().find_var(name);
    if (var == nullptr || !var->persistable() || done.contains(name)) continue;
    if (name == table) {
      MILLRACE_RETURN_IF_ERROR(load_table_rows(slices, program, *serve, value, scope));
      continue;
    }
    const auto* const tensor = value.get_if<Tensor>();
    if (var->spec().has_tensor() && tensor != nullptr &&
        (tensor->dtype() != var->dtype() || !has_dims(*tensor, var->dims()))) {
      return misfit_slice(
          name, value,
          fmt::format("{} [{}]", dtype_name(var->dtype()), fmt::join(var->dims(), ", ")));
    }
    MILLRACE_RETURN_IF_ERROR(copy_value_into(value, scope.root().local(name)));
  }
  return Ok();
}

Status check_loaded_table(const SlicesFile& slices, const Program& program, const Scope& scope) {
  const std::string& name = slices.properties.distributed_lookup_table;
  const Value* const value = scope.find(name);
  const auto* const table = value == nullptr ? nullptr : value->get_if<SelectedRows>();
  if (table == nullptr) return Ok();
  return check_table_rows(program, name, *value, table->value, table->height);
}

Status number_table_rows(const SlicesFile& slices, const Program& program, Scope& scope) {
  const std::string& name = slices.properties.distributed_lookup_table;
  Value* const table = name.empty() ? nullptr : scope.find(name);
  if (table == nullptr) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const Op* const serve, find_serve_op(program));
  const auto servers = static_cast<int64_t>(slices.properties.endpoints.size());
  number_rows(*table, std::max(get_attr_or(*serve, "pserver_id", 0), 0), servers,
              table_height(program, name));
  return Ok();
}

}  // namespace millrace::ps
