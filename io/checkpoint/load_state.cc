#include <algorithm>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "io/cast.h"
#include "io/checkpoint/checkpoint.h"
#include "io/normalize_bools.h"

namespace millrace::io {
namespace {

using Kind = StoredTensor::Kind;

Status in_checkpoint(Status status, const Checkpoint& checkpoint, const std::string& name) {
  Location location = status.location();
  if (location.file.empty()) location.file = checkpoint.folder();
  location.var = name;
  return std::move(status).at(std::move(location));
}

Status check_target(const LoadTarget& target, const StoredTensor& stored, bool casts) {
  if (target.dtype && *target.dtype != stored.dtype && !casts) {
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

// Memory for a target. Dense ones are read together with the others, so that threads share all of
// them.
StatusOr<Value> make_target(const Checkpoint& checkpoint, const LoadTarget& target,
                            const StoredTensor& stored, std::vector<Checkpoint::BoxRead>& reads) {
  Value value;
  if (stored.kind == Kind::kSelectedRows && !target.box) {
    MILLRACE_ASSIGN_OR_RETURN(value.as<SelectedRows>(),
                              checkpoint.load_rows(target.name, target.rows));
    return value;
  }
  const Box box = target.box.value_or(Box::whole(stored.dims));
  // Before memory of that size is asked for.
  MILLRACE_RETURN_IF_ERROR(check_inside(box, stored.dims));
  Tensor& tensor = value.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(tensor.resize(stored.dtype, box.shape));
  if (!target.box) tensor.set_lod(stored.lod);
  reads.push_back({target.name, box, {tensor.raw(), static_cast<size_t>(tensor.bytes())}});
  return value;
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
  std::vector<std::pair<const LoadTarget*, Value>> loaded;
  std::vector<Checkpoint::BoxRead> reads;
  for (const LoadTarget& target : targets) {
    const StoredTensor* const stored = checkpoint.manifest().find(target.name);
    if (stored == nullptr && options.allow_missing) continue;
    if (stored == nullptr) return checkpoint.load(target.name).status();  // says what is near
    Status status = check_target(target, *stored, options.cast);
    if (status.ok()) {
      StatusOr<Value> value = make_target(checkpoint, target, *stored, reads);
      if (value.ok()) loaded.emplace_back(&target, *std::move(value));
      status = std::move(value).status();
    }
    if (!status.ok()) return in_checkpoint(std::move(status), checkpoint, target.name);
  }
  MILLRACE_RETURN_IF_ERROR(checkpoint.read_boxes(reads));
  for (auto& [target, value] : loaded) {
    auto* const rows = value.get_if<SelectedRows>();
    Tensor& tensor = rows == nullptr ? value.as<Tensor>() : rows->value;
    normalize_bools(tensor);
    if (!target->dtype) continue;
    if (Status status = cast(tensor, *target->dtype); !status.ok())
      return in_checkpoint(std::move(status), checkpoint, target->name);
  }
  for (auto& [target, value] : loaded) *target->value = std::move(value);
  return Ok();
}

}  // namespace millrace::io
