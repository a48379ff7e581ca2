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

}  // namespace millrace
