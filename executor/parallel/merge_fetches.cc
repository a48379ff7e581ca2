#include "executor/parallel/merge_fetches.h"

#include <algorithm>
#include <cstring>

#include "framework/base/errors.h"

namespace millrace::executor {
namespace merge_fetches {
namespace {

Dims row_dims(const Tensor& tensor) {
  return tensor.rank() == 0 ? Dims() : Dims(tensor.dims().begin() + 1, tensor.dims().end());
}

Status check_alike(const std::string& name, const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype() && a.rank() == b.rank() && row_dims(a) == row_dims(b) &&
      a.lod().size() == b.lod().size())
    return Ok();
  Location place;
  place.var = name;
  return InvalidArgument(
             "fetch: results of devices are {} and {}, which cannot be joined along dim 0",
             describe(a), describe(b))
      .at(std::move(place))
      .with_hint("fetch without merging");
}

void append_lod(std::vector<LodLevel>& levels, const Lod& lod) {
  for (size_t k = 0; k < lod.size(); ++k) {
    LodLevel& level = levels[k];
    const int64_t before = level.back();
    for (const int64_t offset : lod.level(k).drop_front()) level.push_back(before + offset);
  }
}

Status merge_tensors(const std::string& name, llvm::ArrayRef<const Tensor*> parts, Tensor& whole) {
  if (parts.empty()) {
    whole.reset();
    return Ok();
  }
  const Tensor& first = *parts.front();
  int64_t rows = 0;
  std::vector<LodLevel> levels(first.lod().size(), LodLevel{0});
  for (const Tensor* const part : parts) {
    MILLRACE_RETURN_IF_ERROR(check_alike(name, first, *part));
    rows += part->rank() == 0 ? 1 : part->dim(0);
    append_lod(levels, part->lod());
  }
  Dims dims = row_dims(first);
  dims.insert(dims.begin(), rows);
  MILLRACE_RETURN_IF_ERROR(whole.resize(first.dtype(), dims));
  std::byte* to = whole.raw();
  for (const Tensor* const part : parts) {
    if (part->numel() == 0) continue;
    const auto bytes = static_cast<size_t>(part->bytes());
    std::memcpy(to, part->raw(), bytes);
    to += bytes;
  }
  whole.set_lod(levels.empty() ? Lod() : Lod(std::move(levels)));
  return Ok();
}

Status merge_arrays(const std::string& name, llvm::ArrayRef<const TensorArray*> parts,
                    TensorArray& whole) {
  size_t length = 0;
  for (const TensorArray* const part : parts) length = std::max(length, part->size());
  whole.resize(length);
  for (size_t i = 0; i < length; ++i) {
    llvm::SmallVector<const Tensor*, 8> elements;
    for (const TensorArray* const part : parts) {
      if (i < part->size() && (*part)[i].initialized()) elements.push_back(&(*part)[i]);
    }
    MILLRACE_RETURN_IF_ERROR(merge_tensors(name, elements, whole[i]));
  }
  return Ok();
}

}  // namespace
}  // namespace merge_fetches

Status merge_parts(const std::string& name, llvm::ArrayRef<const Value*> parts, Value& whole) {
  using namespace merge_fetches;
  llvm::SmallVector<const Tensor*, 8> tensors;
  llvm::SmallVector<const TensorArray*, 8> arrays;
  for (const Value* const part : parts) {
    if (!part->initialized()) continue;
    if (const auto* const tensor = part->get_if<Tensor>()) {
      tensors.push_back(tensor);
    } else if (const auto* const array = part->get_if<TensorArray>()) {
      arrays.push_back(array);
    } else {
      Location place;
      place.var = name;
      return InvalidArgument("fetch: expected tensors to join, found {}", describe(*part))
          .at(std::move(place));
    }
  }
  if (arrays.empty()) return merge_tensors(name, tensors, whole.as<Tensor>());
  return merge_arrays(name, arrays, whole.as<TensorArray>());
}

}  // namespace millrace::executor
