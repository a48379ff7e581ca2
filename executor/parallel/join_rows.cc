#include "executor/parallel/join_rows.h"

#include <cstring>

#include "framework/base/errors.h"
#include "framework/tensor/layout.h"

namespace millrace::executor {

Status join_rows(llvm::ArrayRef<const SelectedRows*> parts, SelectedRows& all) {
  const SelectedRows* model = nullptr;
  all.height = parts.front()->height;
  all.rows.clear();
  for (const SelectedRows* const part : parts) {
    all.rows.insert(all.rows.end(), part->rows.begin(), part->rows.end());
    if (part->rows.empty()) continue;
    if (model == nullptr) model = part;
    const Tensor& value = part->value;
    const Tensor& first = model->value;
    if (value.dtype() != first.dtype() || value.rank() != first.rank() ||
        value.dims().drop_front() != first.dims().drop_front() || value.layout() != nullptr) {
      return Status(StatusCode::kExecution,
                    fmt::format("cannot join rows of different form: {} and {}", describe(first),
                                describe(value)));
    }
  }
  if (model == nullptr) {
    const Tensor& value = parts.front()->value;
    return value.initialized() ? all.value.copy_from(value) : Ok();
  }
  Dims dims(model->value.dims().begin(), model->value.dims().end());
  dims[0] = static_cast<int64_t>(all.rows.size());
  MILLRACE_RETURN_IF_ERROR(all.value.resize(model->value.dtype(), dims));
  std::byte* to = all.value.raw();
  for (const SelectedRows* const part : parts) {
    if (part->rows.empty()) continue;
    const auto bytes = static_cast<size_t>(part->value.bytes());
    std::memcpy(to, part->value.raw(), bytes);
    to += bytes;
  }
  return Ok();
}

}  // namespace millrace::executor
