#include "kernels/gpu/device.h"

#include "kernels/gpu/launch.h"

namespace millrace::gpu {

Status Device::multiply(const MatrixProduct& product) {
  return each(*this, MultiplyElement{product}, product.batch * product.rows * product.columns);
}

Status Device::convolve(const Convolution& c) {
  switch (c.what) {
    case Convolution::What::kOutput:
      return each(*this, ConvolveOutput{c}, c.output_count());
    case Convolution::What::kInputGradient:
      return each(*this, ConvolveInputGradient{c}, c.input_count());
    case Convolution::What::kFilterGradient:
      return rows(*this, ConvolveFilterGradient{c}, c.filter_count());
  }
  return {StatusCode::kInternal, "unknown kind of convolution"};
}

}  // namespace millrace::gpu
