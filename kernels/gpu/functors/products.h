#pragma once

#include <array>
#include <cstdint>

namespace millrace::gpu {

/// How operands and results are stored. Sums are floats, and are rounded once to the result.
enum class Element : int32_t { kFloat32, kFloat16, kBfloat16 };
constexpr int64_t bytes_of(Element element) {
  return element == Element::kFloat32 ? 4 : 2;
}

/// c = alpha * a x b + beta * c for a batch of row-major matrices in device memory.
struct MatrixProduct {
  const void* a = nullptr;  ///< [rows, inner], or [inner, rows] if transpose_a
  const void* b = nullptr;  ///< [inner, columns], or [columns, inner] if transpose_b
  void* c = nullptr;        ///< [rows, columns]
  int64_t rows = 0;         ///< of c
  int64_t inner = 0;        ///< terms of each sum
  int64_t columns = 0;      ///< of c
  bool transpose_a = false;
  bool transpose_b = false;  ///< B is stored as [columns, inner]
  float alpha = 1.0F;        ///< factor of the product
  float beta = 0.0F;         ///< 0: c is not read
  int64_t batch = 1;
  int64_t a_stride = 0;  ///< elements from one matrix of the batch to the next; 0: the same matrix
                         ///< for the whole batch
  int64_t b_stride = 0;
  int64_t c_stride = 0;
  Element element = Element::kFloat32;  ///< of all three
};

/// One of the three computations around a convolution of images: channels first, filters
/// [out_channels, in_channels / groups, height, width]. Dims of images and windows are (height,
/// width).
struct Convolution {
  enum class What : int32_t {
    kOutput,          ///< input, filter -> output
    kInputGradient,   ///< output, filter -> input; both are gradients
    kFilterGradient,  ///< input, output -> filter; the last two are gradients
  };
  What what = What::kOutput;
  void* input = nullptr;  ///< [batch, in_channels, in]
  void* filter = nullptr;
  void* output = nullptr;  ///< [batch, out_channels, out]
  int64_t batch = 0;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t groups = 1;      ///< each combines its own range of input and output channels
  int64_t in[2] = {};      ///< size of the input images
  int64_t out[2] = {};     ///< size of the results
  int64_t kernel[2] = {};  ///< size of a window
  int64_t stride[2] = {1, 1};
  int64_t before[2] = {};  ///< padding at the top and left; bottom and right follow from the dims
  int64_t dilation[2] = {1, 1};
  Element element = Element::kFloat32;  ///< of all three

  /// All fields but the pointers, in order to remember something by shape.
  using Shape = std::array<int64_t, 18>;
  [[nodiscard]] constexpr Shape shape() const {
    return {static_cast<int64_t>(what),
            batch,
            in_channels,
            out_channels,
            groups,
            in[0],
            in[1],
            out[0],
            out[1],
            kernel[0],
            kernel[1],
            stride[0],
            stride[1],
            before[0],
            before[1],
            dilation[0],
            dilation[1],
            static_cast<int64_t>(element)};
  }
  /// True if each result depends on one pixel only: then an image of the result is a product of the
  /// filter, or its transpose, with an image.
  [[nodiscard]] constexpr bool is_product() const {
    const bool one_pixel = kernel[0] == 1 && kernel[1] == 1 && stride[0] == 1 && stride[1] == 1 &&
                           before[0] == 0 && before[1] == 0 && in[0] == out[0] && in[1] == out[1];
    return one_pixel && groups == 1 && what != What::kFilterGradient;
  }

  /// Number of elements of each operand.
  [[nodiscard]] constexpr int64_t input_count() const {
    return batch * in_channels * in[0] * in[1];
  }
  [[nodiscard]] constexpr int64_t output_count() const {
    return batch * out_channels * out[0] * out[1];
  }
  [[nodiscard]] constexpr int64_t filter_count() const {
    return out_channels * (in_channels / groups) * kernel[0] * kernel[1];
  }
};

/// The convolution as a product; is_product() must be true.
constexpr MatrixProduct product_of(const Convolution& c) {
  const bool forward = c.what == Convolution::What::kOutput;
  MatrixProduct p;
  p.a = c.filter;  // [out_channels, in_channels], the same for all images
  p.b = forward ? c.input : c.output;
  p.c = forward ? c.output : c.input;
  p.rows = forward ? c.out_channels : c.in_channels;
  p.inner = forward ? c.in_channels : c.out_channels;
  p.columns = c.in[0] * c.in[1];
  p.transpose_a = !forward;
  p.batch = c.batch;
  p.b_stride = p.inner * p.columns;
  p.c_stride = p.rows * p.columns;
  p.element = c.element;
  return p;
}

}  // namespace millrace::gpu
