#include "kernels/cpu/nn/plain_conv.h"

#include <algorithm>
#include <array>

#include <Eigen/Core>

namespace millrace::kernels {
namespace plain_conv {
namespace {

using Three = std::array<int64_t, 3>;

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
using Packed = Eigen::Map<Matrix<T>>;
template <typename T>
using Given = Eigen::Map<const Matrix<T>>;
template <typename T>
using Strided = Eigen::Map<Matrix<T>, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;

// Extends lists of one to three spatial numbers to three; missing leading ones get a neutral value.
Three widen(llvm::ArrayRef<int64_t> list, int64_t neutral) {
  Three wide = {neutral, neutral, neutral};
  std::copy(list.begin(), list.end(), wide.end() - static_cast<std::ptrdiff_t>(list.size()));
  return wide;
}

int64_t product(const Three& values) {
  return values[0] * values[1] * values[2];
}

// The sizes of a convolution with three spatial dims.
struct PlainConvShape {
  explicit PlainConvShape(const dnn::Convolution& spec)
      : batch(spec.src.dims[0]),
        size(widen(llvm::ArrayRef<int64_t>(spec.src.dims).drop_front(2), 1)),
        places(widen(llvm::ArrayRef<int64_t>(spec.dst.dims).drop_front(2), 1)),
        kernel(widen(llvm::ArrayRef<int64_t>(spec.weights.dims).take_back(spec.strides.size()), 1)),
        strides(widen(spec.strides, 1)),
        dilations(widen(spec.dilations, 1)),
        before(widen(spec.before, 0)),
        step(widen(llvm::ArrayRef<int64_t>(spec.src.strides).drop_front(2), 0)) {
    groups = spec.weights.dims.size() == spec.src.dims.size() ? 1 : spec.weights.dims[0];
    in = spec.src.dims[1] / groups;
    out = spec.dst.dims[1] / groups;
    column = in * product(kernel);
  }

  int64_t batch;
  int64_t groups;
  int64_t in;  // channels per group
  int64_t out;
  int64_t column;  // elements of a window, over all channels of a group
  Three size;
  Three places;
  Three kernel;
  Three strides;
  Three dilations;
  Three before;
  Three step;  // distance between neighbours of src along each spatial dim
};

// Calls line(row of the matrix of windows, first element of a line of src, first index) for each
// element of the window and each line of output positions; for lines outside of src, the element is
// negative.
template <typename Line>
void for_each_line(const PlainConvShape& s, int64_t channel_step, Line&& line) {
  int64_t row = 0;
  for (int64_t c = 0; c < s.in; ++c) {
    for (int64_t kd = 0; kd < s.kernel[0]; ++kd) {
      for (int64_t kh = 0; kh < s.kernel[1]; ++kh) {
        for (int64_t kw = 0; kw < s.kernel[2]; ++kw, ++row) {
          int64_t at = row * product(s.places);
          for (int64_t d = 0; d < s.places[0]; ++d) {
            const int64_t x = d * s.strides[0] + kd * s.dilations[0] - s.before[0];
            for (int64_t h = 0; h < s.places[1]; ++h, at += s.places[2]) {
              const int64_t y = h * s.strides[1] + kh * s.dilations[1] - s.before[1];
              const bool inside = x >= 0 && x < s.size[0] && y >= 0 && y < s.size[1];
              const int64_t from = c * channel_step + x * s.step[0] + y * s.step[1];
              line(at, inside ? from : -1, kw * s.dilations[2] - s.before[2]);
            }
          }
        }
      }
    }
  }
}

template <typename T>
void gather_windows(const PlainConvShape& s, const T* image, int64_t channel_step, T* columns) {
  for_each_line(s, channel_step, [&](int64_t at, int64_t from, int64_t first) {
    T* const to = columns + at;
    for (int64_t w = 0; w < s.places[2]; ++w) {
      const int64_t x = w * s.strides[2] + first;
      to[w] = from >= 0 && x >= 0 && x < s.size[2] ? image[from + x * s.step[2]] : T{0};
    }
  });
}

template <typename T>
void add_windows(const PlainConvShape& s, const T* columns, int64_t channel_step, T* image) {
  for_each_line(s, channel_step, [&](int64_t at, int64_t to, int64_t first) {
    if (to < 0) return;
    for (int64_t w = 0; w < s.places[2]; ++w) {
      const int64_t x = w * s.strides[2] + first;
      if (x >= 0 && x < s.size[2]) image[to + x * s.step[2]] += columns[at + w];
    }
  });
}

// The channels of one group of one image of dst as a matrix [channels, places].
template <typename T>
Strided<T> places_of(const dnn::Convolution& spec, const PlainConvShape& s, T* dst, int64_t n,
                     int64_t g) {
  const Dims& strides = spec.dst.strides;
  return Strided<T>(dst + n * strides[0] + g * s.out * strides[1], s.out, product(s.places),
                    Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(strides[1], strides.back()));
}

int64_t src_offset(const dnn::Convolution& spec, const PlainConvShape& s, int64_t n, int64_t g) {
  return n * spec.src.strides[0] + g * s.in * spec.src.strides[1];
}

template <typename T>
StatusOr<T*> column_memory(CpuDevice& device, const PlainConvShape& s) {
  const int64_t count = s.column * product(s.places);
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            device.scratch(static_cast<size_t>(count) * sizeof(T)));
  return reinterpret_cast<T*>(memory);
}

}  // namespace
}  // namespace plain_conv

// Calls body(image, group) for all, with the windows of the input of that group in `columns`.
template <typename T, typename Body>
void for_windows(const plain_conv::PlainConvShape& s, const dnn::Convolution& spec, const T* src,
                 T* columns, Body&& body) {
  using namespace plain_conv;
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t g = 0; g < s.groups; ++g) {
      gather_windows(s, src + src_offset(spec, s, n, g), spec.src.strides[1], columns);
      body(n, g);
    }
  }
}

template <typename T>
Status plain_convolution(CpuDevice& device, const dnn::Convolution& spec, const T* src,
                         const T* weights, T* dst) {
  using namespace plain_conv;
  const PlainConvShape s(spec);
  MILLRACE_ASSIGN_OR_RETURN(T* const columns, column_memory<T>(device, s));
  const Given<T> windows(columns, s.column, product(s.places));
  for_windows(s, spec, src, columns, [&](int64_t n, int64_t g) {
    const Given<T> filter(weights + g * s.out * s.column, s.out, s.column);
    places_of(spec, s, dst, n, g).noalias() = filter * windows;
  });
  return Ok();
}

template <typename T>
Status plain_convolution_backward_data(CpuDevice& device, const dnn::Convolution& spec,
                                       const T* diff_dst, const T* weights, T* diff_src) {
  using namespace plain_conv;
  const PlainConvShape s(spec);
  MILLRACE_ASSIGN_OR_RETURN(T* const columns, column_memory<T>(device, s));
  std::fill_n(diff_src, s.batch * s.groups * s.in * product(s.size), T{0});
  Packed<T> windows(columns, s.column, product(s.places));
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t g = 0; g < s.groups; ++g) {
      const Given<T> filter(weights + g * s.out * s.column, s.out, s.column);
      windows.noalias() = filter.transpose() * places_of(spec, s, const_cast<T*>(diff_dst), n, g);
      add_windows(s, columns, spec.src.strides[1], diff_src + src_offset(spec, s, n, g));
    }
  }
  return Ok();
}

template <typename T>
Status plain_convolution_backward_weights(CpuDevice& device, const dnn::Convolution& spec,
                                          const T* src, const T* diff_dst, T* diff_weights) {
  using namespace plain_conv;
  const PlainConvShape s(spec);
  MILLRACE_ASSIGN_OR_RETURN(T* const columns, column_memory<T>(device, s));
  std::fill_n(diff_weights, s.groups * s.out * s.column, T{0});
  const Given<T> windows(columns, s.column, product(s.places));
  for_windows(s, spec, src, columns, [&](int64_t n, int64_t g) {
    Packed<T> filter(diff_weights + g * s.out * s.column, s.out, s.column);
    filter.noalias() += places_of(spec, s, const_cast<T*>(diff_dst), n, g) * windows.transpose();
  });
  return Ok();
}

template Status plain_convolution(CpuDevice&, const dnn::Convolution&, const float*, const float*,
                                  float*);
template Status plain_convolution(CpuDevice&, const dnn::Convolution&, const double*, const double*,
                                  double*);
template Status plain_convolution_backward_data(CpuDevice&, const dnn::Convolution&, const float*,
                                                const float*, float*);
template Status plain_convolution_backward_data(CpuDevice&, const dnn::Convolution&, const double*,
                                                const double*, double*);
template Status plain_convolution_backward_weights(CpuDevice&, const dnn::Convolution&,
                                                   const float*, const float*, float*);
template Status plain_convolution_backward_weights(CpuDevice&, const dnn::Convolution&,
                                                   const double*, const double*, double*);

}  // namespace millrace::kernels
