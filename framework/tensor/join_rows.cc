#include "framework/tensor/join_rows.h"

#include <cstring>

#include "framework/base/errors.h"
#include "framework/tensor/layout.h"

namespace millrace {
namespace {

bool fits_beside(const Tensor& part, const Tensor& first) {
  return part.rank() > 0 && part.rank() == first.rank() && part.dtype() == first.dtype() &&
         part.layout() == nullptr && part.dims().drop_front() == first.dims().drop_front();
}

}  // namespace

Status resize_rows(const Tensor& like, int64_t rows, Tensor& to) {
  Dims dims(like.dims().begin(), like.dims().end());
  if (dims.empty()) dims.push_back(0);
  dims[0] = rows;
  return to.resize(like.dtype(), dims);
}

Status join_rows(llvm::ArrayRef<const Tensor*> parts, Tensor& whole) {
  const Tensor& first = *parts.front();
  int64_t rows = 0;
  for (const Tensor* const part : parts) {
    if (!fits_beside(*part, first))
      return {StatusCode::kExecution,
              fmt::format("rows cannot be joined: {} and {}", describe(first), describe(*part))};
    rows += part->dim(0);
  }
  MILLRACE_RETURN_IF_ERROR(resize_rows(first, rows, whole));
  std::byte* to = whole.raw();
  for (const Tensor* const part : parts) {
    const auto bytes = static_cast<size_t>(part->bytes());
    if (bytes > 0) std::memcpy(to, part->raw(), bytes);
    to += bytes;
  }
  return Ok();
}

Status join_rows(llvm::ArrayRef<const SelectedRows*> parts, SelectedRows& whole) {
  const SelectedRows* like = parts.front();
  std::vector<const Tensor*> values;
  whole.rows.clear();
  for (const SelectedRows* const part : parts) {
    if (part->rows.empty()) continue;
    if (values.empty()) like = part;
    values.push_back(&part->value);
    whole.rows.insert(whole.rows.end(), part->rows.begin(), part->rows.end());
    if (part->height != like->height || part->value.rank() == 0 ||
        part->value.dim(0) != static_cast<int64_t>(part->rows.size())) {
      return {StatusCode::kExecution,
              fmt::format("rows cannot be joined: {} rows of height {} in {}, and {} of {} in {}",
                          like->rows.size(), like->height, describe(like->value), part->rows.size(),
                          part->height, describe(part->value))};
    }
  }
  whole.height = like->height;
  return values.empty() ? resize_rows(like->value, 0, whole.value) : join_rows(values, whole.value);
}

}  // namespace millrace
