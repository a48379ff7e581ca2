#include "executor/feed_values.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/tensor/layout.h"
#include "framework/types.h"
#include "kernels/gpu/resident.h"

namespace millrace::executor {

namespace {

// Older releases did not mark what is fed, so kernels took integers of other widths. Integers for
// floats would make a chain of elementwise ops compute in integers.
bool may_stand_for(DType found, DType declared) {
  const auto is_whole = [](DType type) { return is_integer(type) || type == DType::kBool; };
  return found == declared || (is_whole(found) && is_whole(declared));
}

}  // namespace

Status check_feed(const Var* var, const Value& value) {
  const auto* const tensor = value.get_if<Tensor>();
  if (var == nullptr || tensor == nullptr || !var->spec().has_tensor()) return Ok();
  const auto at_var = [&](Status status) {
    Location place;
    place.var = var->name().str();
    return std::move(status).at(std::move(place));
  };
  const auto fail = [&](const std::string& expected) {
    return at_var({StatusCode::kInvalidArgument,
                   fmt::format("feed: expected {}, found {}", expected, describe(*tensor))});
  };
  if (Status status = tensor->lod().check(tensor->rank() == 0 ? 1 : tensor->dim(0)); !status.ok())
    return at_var(std::move(status));
  const bool strict = var->spec().need_check_feed.value_or(false);
  if (strict ? tensor->dtype() != var->dtype() : !may_stand_for(tensor->dtype(), var->dtype()))
    return fail(std::string(dtype_name(var->dtype())));
  if (!strict) return Ok();
  const llvm::ArrayRef<int64_t> dims = var->dims();
  bool fits = tensor->rank() == dims.size();
  for (size_t i = 0; fits && i < dims.size(); ++i)
    fits = dims[i] < 0 || dims[i] == tensor->dims()[i];
  return fits ? Ok() : fail(fmt::format("dims [{}]", fmt::join(dims, ", ")));
}

Status copy_feed(const std::string& name, const Value& value, gpu::Memory* memory, Value& target) {
  const auto* const from = value.get_if<Tensor>();
  auto* const to = target.get_if<Tensor>();
  if (memory != nullptr && from != nullptr && to != nullptr && gpu::resident(*to) != nullptr)
    return gpu::upload(*from, *to, *memory, name);
  return copy_value(value, target);
}

Status copy_value(const Value& from, Value& to) {
  if (const auto* const tensor = from.get_if<Tensor>()) return copy_plain(*tensor, to.as<Tensor>());
  if (const auto* const rows = from.get_if<SelectedRows>()) {
    auto& copy = to.as<SelectedRows>();
    copy.rows = rows->rows;
    copy.height = rows->height;
    return copy_plain(rows->value, copy.value);
  }
  MILLRACE_ASSIGN_OR_RETURN(to, clone(from));
  return Ok();
}

}  // namespace millrace::executor
