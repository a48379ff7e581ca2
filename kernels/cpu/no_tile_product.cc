#include "kernels/cpu/tile_product.h"

namespace millrace::kernels::tiles {

bool available() {
  return false;
}

bool pay(const Shape& /*shape*/, int /*threads*/) {
  return false;
}

Status multiply(CpuDevice& /*device*/, const Shape& /*shape*/, const Operands& /*operands*/) {
  return {StatusCode::kUnimplemented, "this processor has no tile instructions"};
}

}  // namespace millrace::kernels::tiles
