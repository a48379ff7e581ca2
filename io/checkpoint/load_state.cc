#include <algorithm>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "io/checkpoint/checkpoint.h"

namespace millrace::io {
namespace {

using Kind = StoredTensor::Kind;

Status check_target(const LoadTarget& target, const StoredTensor& stored) {
  if (target.dtype && *target.dtype != stored.dtype) {
    return InvalidData("expected dtype {}, found {}", dtype_name(*target.dtype),
                       dtype_name(stored.dtype));
  }
  if (!target.dims) return Ok();
  const bool rows = stored.kind == Kind::kSelectedRows;
  bool fits = target.dims->size() == stored.dims.size();
  for (size_t i = rows ? 1 : 0; fits && i < stored.dims.size(); ++i)
    fits = (*target.dims)[i] == -1 || (*target.dims)[i] == stored.dims[i];
  if (fits) return Ok();
  return InvalidData("expected shape [{}], found [{}]", fmt::join(*target.dims, ", "),
                     fmt::join(stored.dims, ", "));
}

StatusOr<Value> load_target(const Checkpoint& checkpoint, const LoadTarget& target,
                            const StoredTensor& stored) {
  Value value;
  if (stored.kind == Kind::kSelectedRows && !target.box) {
    MILLRACE_ASSIGN_OR_RETURN(value.as<SelectedRows>(),
                              checkpoint.load_rows(target.name, target.rows));
    return value;
  }
  if (target.box) {
    MILLRACE_ASSIGN_OR_RETURN(value.as<Tensor>(), checkpoint.load_box(target.name, *target.box));
    return value;
  }
  return checkpoint.load(target.name);
}

Status check_unexpected(const Checkpoint& checkpoint, const std::vector<LoadTarget>& targets) {
  std::set<std::string_view> names;
  for (const LoadTarget& target : targets) names.insert(target.name);
  for (const StoredTensor& stored : checkpoint.manifest().tensors) {
    if (names.contains(stored.name)) continue;
    Location location;
    location.file = checkpoint.folder();
    location.var = stored.name;
    return InvalidData("the checkpoint has a tensor that is not wanted").at(std::move(location));
  }
  return Ok();
}

}  // namespace

Status load_state_dict(const Checkpoint& checkpoint, const std::vector<LoadTarget>& targets,
                       const LoadStateOptions& options) {
  if (!options.allow_unexpected) MILLRACE_RETURN_IF_ERROR(check_unexpected(checkpoint, targets));
  std::vector<std::pair<Value*, Value>> loaded;
  for (const LoadTarget& target : targets) {
    const StoredTensor* const stored = checkpoint.manifest().find(target.name);
    if (stored == nullptr && options.allow_missing) continue;
    if (stored == nullptr) return checkpoint.load(target.name).status();  // says what is near
    if (Status status = check_target(target, *stored); !status.ok()) {
      Location location;
      location.file = checkpoint.folder();
      location.var = target.name;
      return std::move(status).at(std::move(location));
    }
    MILLRACE_ASSIGN_OR_RETURN(Value value, load_target(checkpoint, target, *stored));
    loaded.emplace_back(target.value, std::move(value));
  }
  for (auto& [target, value] : loaded) *target = std::move(value);
  return Ok();
}

}  // namespace millrace::io
