#include "framework/tensor/layout.h"

#include <utility>

namespace millrace {

Status make_plain(Tensor& tensor) {
  if (tensor.layout() == nullptr) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(Tensor plain, Tensor::create(tensor.dtype(), tensor.dims()));
  MILLRACE_RETURN_IF_ERROR(tensor.layout()->to_plain(tensor.raw(), plain.raw()));
  plain.set_lod(tensor.lod());
  tensor = std::move(plain);
  return Ok();
}

Status copy_plain(const Tensor& from, Tensor& to) {
  if (&from == &to) return make_plain(to);
  if (from.layout() == nullptr) return to.copy_from(from);
  MILLRACE_RETURN_IF_ERROR(to.resize(from.dtype(), from.dims()));
  to.set_lod(from.lod());
  return from.layout()->to_plain(from.raw(), to.raw());
}

}  // namespace millrace
