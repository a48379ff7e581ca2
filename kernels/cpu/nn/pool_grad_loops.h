#pragma once

#include "kernels/cpu/nn/pool_loops.h"

namespace millrace::kernels {

/// Operands of the gradient of a pooling, for one plane or one image.
/// x and out are read by max pooling only. dx is added to.
template <typename T>
struct PoolGrad {
  const T* x;     ///< input of the pooling
  const T* out;   ///< its result
  const T* dout;  ///< gradient of the result
  T* dx;          ///< gradient of the input
};

/// Output positions or channels that are processed together; their gradients fit in the L1 cache.
constexpr int64_t kPoolLanes = 256;

/// Adds the remaining gradient to the first element of each window that equals the maximum; the
/// remainder in `left` is then 0.
/// The windows of adjacent positions overlap, so callers visit the elements of the windows in the
/// order of memory: the first maximum of a window gets the gradient, as in the original.
/// \param step  elements from one position's input element to the next; often a constant
template <typename T, typename Step>
void give_to_maximum(int64_t n, const T* __restrict x, const T* __restrict out, Step step,
                     T* __restrict left, T* __restrict dx) {
  for (int64_t i = 0; i < n; ++i) {
    const bool hit = x[i * step] == out[i];
    dx[i * step] += hit ? left[i] : T{0};
    left[i] = hit ? T{0} : left[i];
  }
}

/// For output positions [begin, end) of a line, the gradient that each element of the window gets.
/// Max pooling: the gradient itself. Average pooling: the gradient divided by the number of
/// elements that the average counted.
template <typename T, bool kMax>
void load_shares(const PoolPlan& p, int64_t d, int64_t h, int64_t begin, int64_t end, const T* dout,
                 T* left) {
  std::copy(dout + begin, dout + end, left);
  if constexpr (!kMax) divide_by_counts(p, d, h, begin, end, 1, left);
}

/// give_to_maximum() for the windows of has_windows_of_four().
/// \param x, dx  the upper left elements of the first window
/// \param line   elements from one line of the plane to the next
template <typename T>
void give_to_maximum_of_four(int64_t n, const T* __restrict x, const T* __restrict out,
                             const T* __restrict dout, int64_t line, T* __restrict dx) {
  const T* __restrict const below = x + line;
  T* __restrict const dx_below = dx + line;
  for (int64_t i = 0; i < n; ++i) {
    const T most = out[i];
    T left = dout[i];
    const auto given = [&left, most](T value) {
      const bool hit = value == most;
      const T share = hit ? left : T{0};
      left = hit ? T{0} : left;
      return share;
    };
    dx[2 * i] += given(x[2 * i]);
    dx[2 * i + 1] += given(x[2 * i + 1]);
    dx_below[2 * i] += given(below[2 * i]);
    dx_below[2 * i + 1] += given(below[2 * i + 1]);
  }
}

/// Output positions [begin, end) of a line whose windows are complete, at most kPoolLanes of them.
template <typename T, bool kMax>
void give_whole(const PoolPlan& p, int64_t d, int64_t h, int64_t begin, int64_t end,
                const PoolGrad<T>& g) {
  const PoolAxis& width = p.axes[2];
  const int64_t n = end - begin;
  if (kMax && has_windows_of_four(p, h)) {
    const int64_t at =
        p.axes[1].begin[static_cast<size_t>(h)] * width.size - width.before + begin * width.stride;
    give_to_maximum_of_four(n, g.x + at, g.out + begin, g.dout + begin, width.size, g.dx + at);
    return;
  }
  T left[kPoolLanes];
  load_shares<T, kMax>(p, d, h, begin, end, g.dout, left);
  for_lines(p, d, h, [&](int64_t line) {
    for (int64_t k = 0; k < width.kernel; ++k) {
      // element k of the window of the first output position
      const int64_t at = line * width.size + k - width.before + begin * width.stride;
      with_step(width.stride, [&](auto step) {
        if constexpr (kMax) {
          give_to_maximum(n, g.x + at, g.out + begin, step, left, g.dx + at);
        } else {
          T* const dx = g.dx + at;
          for (int64_t i = 0; i < n; ++i) dx[i * step] += left[i];
        }
      });
    }
  });
}

/// One output position whose window is clipped at the border, or is adaptive.
template <typename T, bool kMax>
void give_part(const PoolPlan& p, int64_t d, int64_t h, int64_t w, const PoolGrad<T>& g) {
  const PoolAxis& width = p.axes[2];
  const auto place = static_cast<size_t>(w);
  T left[1] = {};
  load_shares<T, kMax>(p, d, h, w, w + 1, g.dout, left);
  for_lines(p, d, h, [&](int64_t line) {
    for (int64_t x = width.begin[place]; x < width.end[place]; ++x) {
      const int64_t at = line * width.size + x;
      if constexpr (kMax) {
        give_to_maximum(1, g.x + at, g.out + w, 1, left, g.dx + at);
      } else {
        g.dx[at] += *left;
      }
    }
  });
}

/// One channel of one image; dx must be zero before.
template <typename T, bool kMax>
void pool_plane_grad(const PoolPlan& p, PoolGrad<T> g) {
  const PoolAxis& width = p.axes[2];
  for (int64_t d = 0; d < p.axes[0].places; ++d) {
    for (int64_t h = 0; h < p.axes[1].places; ++h) {
      for (int64_t w = width.whole_begin; w < width.whole_end; w += kPoolLanes)
        give_whole<T, kMax>(p, d, h, w, std::min(w + kPoolLanes, width.whole_end), g);
      for (int64_t w = 0; w < width.places; ++w) {
        if (w == width.whole_begin) w = width.whole_end;
        if (w < width.places) give_part<T, kMax>(p, d, h, w, g);
      }
      g.out += width.places;
      g.dout += width.places;
    }
  }
}

/// The window of one output position, for channels [c, c + PoolVector::kLanes).
/// \param place  the output position
/// \param count  number of elements that an average divides by
template <typename T, bool kMax>
void give_vector(const PoolPlan& p, int64_t d, int64_t h, int64_t w, int64_t place, T count,
                 int64_t c, const PoolGrad<T>& g) {
  using Vector = PoolVector<T>;
  using Type = typename Vector::Type;
  const Type none = {};
  Type left = Vector::in(g.dout + place * p.channels + c);
  if constexpr (!kMax) left /= count;
  const Type most = kMax ? Type{Vector::in(g.out + place * p.channels + c)} : none;
  for_pixels(p, d, h, w, [&](int64_t pixel) {
    const int64_t at = pixel + c;
    if constexpr (kMax) {
      // the first maximum of a window gets the gradient
      const auto hit = Vector::in(g.x + at) == most;
      Vector::out(g.dx + at) += hit ? left : none;
      left = hit ? none : left;
    } else {
      Vector::out(g.dx + at) += left;
    }
  });
}

/// The same for all channels, which need not fill registers.
template <typename T, bool kMax>
void give_pixel(const PoolPlan& p, int64_t d, int64_t h, int64_t w, int64_t place, T count,
                const PoolGrad<T>& g) {
  constexpr std::integral_constant<int64_t, 1> kAdjacent;
  T left[kPoolLanes];
  for (int64_t c = 0; c < p.channels; c += kPoolLanes) {
    const int64_t n = std::min(kPoolLanes, p.channels - c);
    const int64_t from = place * p.channels + c;
    for (int64_t i = 0; i < n; ++i) left[i] = kMax ? g.dout[from + i] : g.dout[from + i] / count;
    for_pixels(p, d, h, w, [&](int64_t pixel) {
      T* const dx = g.dx + pixel + c;
      if constexpr (kMax) {
        give_to_maximum(n, g.x + pixel + c, g.out + from, kAdjacent, left, dx);
      } else {
        for (int64_t i = 0; i < n; ++i) dx[i] += left[i];
      }
    });
  }
}

/// One image, channels last; dx must be zero before.
/// Positions are visited one after the other, because their windows overlap.
template <typename T, bool kMax>
void pool_pixels_grad(const PoolPlan& p, const PoolGrad<T>& g) {
  const PoolAxis& width = p.axes[2];
  const bool in_vectors = PoolVector<T>::fits(p.channels);
  int64_t place = 0;
  for (int64_t d = 0; d < p.axes[0].places; ++d) {
    for (int64_t h = 0; h < p.axes[1].places; ++h) {
      for (int64_t w = 0; w < width.places; ++w, ++place) {
        const T count = static_cast<T>(p.axes[0].count[static_cast<size_t>(d)] *
                                       p.axes[1].count[static_cast<size_t>(h)] *
                                       width.count[static_cast<size_t>(w)]);
        if (!in_vectors) {
          give_pixel<T, kMax>(p, d, h, w, place, count, g);
          continue;
        }
        for (int64_t c = 0; c < p.channels; c += PoolVector<T>::kLanes)
          give_vector<T, kMax>(p, d, h, w, place, count, c, g);
      }
    }
  }
}

}  // namespace millrace::kernels
