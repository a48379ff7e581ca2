#include "executor/gpu/kept_places.h"

#include <utility>

#include "framework/tensor/layout.h"
#include "kernels/gpu/resident.h"

namespace millrace::executor {

void KeptPlaces::note(Value& value, const std::string& name) {
  const auto* const tensor = value.get_if<Tensor>();
  const gpu::ResidentLayout* const there = tensor == nullptr ? nullptr : gpu::resident(*tensor);
  if (there == nullptr || &there->block()->memory() != &context_->memory()) return;
  places_[&value] = {there->block(), there->data() - there->block()->data(), there->capacity(),
                     name};
}

Status KeptPlaces::settle() {
  for (const auto& [value, place] : places_) MILLRACE_RETURN_IF_ERROR(settle(*value, place));
  return Ok();
}

Status KeptPlaces::settle(Value& value) {
  const auto found = places_.find(&value);
  return found == places_.end() ? Ok() : settle(value, found->second);
}

Status KeptPlaces::settle(Value& value, const Place& place) {
  auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized() || tensor->layout() != nullptr ||
      tensor->bytes() > place.capacity)
    return Ok();
  Tensor moved;
  MILLRACE_RETURN_IF_ERROR(gpu::reserve_resident(moved, place.block, place.offset, place.capacity));
  MILLRACE_RETURN_IF_ERROR(gpu::upload(*tensor, moved, context_->memory(), place.name));
  *tensor = std::move(moved);
  return Ok();
}

Status bring_home(Scope& scope) {
  for (const std::string& name : scope.names()) {
    Value& value = *scope.find_local(name);
    if (auto* const tensor = value.get_if<Tensor>(); tensor != nullptr && gpu::resident(*tensor))
      MILLRACE_RETURN_IF_ERROR(make_plain(*tensor));
    if (auto* const rows = value.get_if<SelectedRows>();
        rows != nullptr && gpu::resident(rows->value))
      MILLRACE_RETURN_IF_ERROR(make_plain(rows->value));
  }
  return Ok();
}

}  // namespace millrace::executor
