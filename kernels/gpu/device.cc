#include "kernels/gpu/device.h"

#include "kernels/gpu/launch.h"

namespace millrace::gpu {
namespace device {
namespace {

// Calls body with a value of the type that stores the elements.
template <typename Body>
Status with_element(Element element, const Body& body) {
  switch (element) {
    case Element::kFloat32:
      return body(float{});
    case Element::kFloat16:
      return body(Half{});
    case Element::kBfloat16:
      return body(Brain{});
  }
  return {StatusCode::kInternal, "unknown type of elements"};
}

}  // namespace
}  // namespace device

Status Device::multiply(const MatrixProduct& product) {
  return device::with_element(product.element, [&](auto tag) {
    return each(*this, MultiplyElement<decltype(tag)>{product},
                product.batch * product.rows * product.columns);
  });
}

Status Device::convolve(const Convolution& c) {
  return device::with_element(c.element, [&](auto tag) -> Status {
    using T = decltype(tag);
    switch (c.what) {
      case Convolution::What::kOutput:
        return each(*this, ConvolveOutput<T>{c}, c.output_count());
      case Convolution::What::kInputGradient:
        return each(*this, ConvolveInputGradient<T>{c}, c.input_count());
      case Convolution::What::kFilterGradient:
        return rows(*this, ConvolveFilterGradient<T>{c}, c.filter_count());
    }
    return {StatusCode::kInternal, "unknown kind of convolution"};
  });
}

}  // namespace millrace::gpu
