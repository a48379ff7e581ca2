#include "ps/table/table.h"

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

StatusOr<const Tensor*> argument_at(const TableCall& call, size_t place, DType dtype) {
  if (place >= call.args.size() || call.args[place] == nullptr)
    return InvalidArgument("argument {} is missing", place);
  const auto* const tensor = call.args[place]->get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized() || tensor->dtype() != dtype)
    return InvalidArgument("argument {} is {}, expected a tensor of {}", place,
                           describe(*call.args[place]), dtype == DType::kInt64 ? "i64" : "f32");
  return tensor;
}

}  // namespace

StatusOr<TableState> Table::state() {
  return Unimplemented("snapshots of tables of class '{}' are not implemented", table_class());
}

Status Table::set_state(const TableState& /*state*/) {
  return Unimplemented("snapshots of tables of class '{}' are not implemented", table_class());
}

StatusOr<std::span<const int64_t>> ids_of(const TableCall& call, size_t place) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor, argument_at(call, place, DType::kInt64));
  return tensor->values<int64_t>();
}

StatusOr<std::span<const float>> floats_of(const TableCall& call, size_t place, size_t count) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor, argument_at(call, place, DType::kFloat32));
  if (static_cast<size_t>(tensor->numel()) != count)
    return InvalidArgument("argument {} has {} elements, expected {}", place, tensor->numel(),
                           count);
  return tensor->values<float>();
}

}  // namespace millrace::ps
