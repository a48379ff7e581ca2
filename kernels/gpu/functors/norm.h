#pragma once

#include <cmath>
#include <cstdint>

// Functors of batch normalization. T stores the images: float, Half or Brain; all other numbers are
// f32. Sums are kept in double, so that their order,
// which depends on the size of the team, hardly matters.
namespace millrace::gpu {

/// Images [batch, channels, inner] that are normalized by channel.
struct NormImages {
  int64_t batch;     ///< images
  int64_t channels;  ///< each is normalized with statistics over batch and inner
  int64_t inner;     ///< pixels of one channel of one image
  /// Number of elements of a channel.
  [[nodiscard]] constexpr int64_t of_channel() const { return batch * inner; }
};

/// The elements of each channel, divided into parts, so that there is work for a whole GPU also
/// where channels are few. A functor has a row for each part: parts of channel 0, of channel 1, ...
struct NormParts {
  NormImages images;
  int64_t parts;  ///< of each channel, > 0
  [[nodiscard]] constexpr int64_t rows() const { return images.channels * parts; }
  [[nodiscard]] constexpr int64_t channel(int64_t row) const { return row / parts; }
  /// The first element of the part, counted within the channel.
  [[nodiscard]] constexpr int64_t begin(int64_t row) const {
    return row % parts * images.of_channel() / parts;
  }
  [[nodiscard]] constexpr int64_t end(int64_t row) const {
    return (row % parts + 1) * images.of_channel() / parts;
  }
  /// The sum over the parts of a channel of entry `which` of two. \param sums  [rows, 2]
  [[nodiscard]] constexpr double total(const double* sums, int64_t of_channel,
                                       int64_t which) const {
    double sum = 0;
    for (int64_t p = 0; p < parts; ++p) sum += sums[(of_channel * parts + p) * 2 + which];
    return sum;
  }
};

/// The elements of a part that a thread of a team computes. Divides a few times only, because
/// divisions cost more than the arithmetic of the functors.
struct PartWalk {
  template <typename Team>
  constexpr PartWalk(const NormParts& of, const Team& team, int64_t row)
      : left(of.end(row) - of.begin(row) - team.rank()),
        step(team.size()),
        inner(of.images.inner),
        gap((of.images.channels - 1) * of.images.inner) {
    const int64_t first = of.begin(row) + team.rank();
    pixel = first % inner;
    at = (first / inner * of.images.channels + of.channel(row)) * inner + pixel;
    step_pixels = step % inner;
    step_at = step / inner * of.images.channels * inner + step_pixels;
  }
  /// False at the end.
  [[nodiscard]] constexpr bool more() const { return left > 0; }
  constexpr void next() {
    left -= step;
    at += step_at;
    pixel += step_pixels;
    if (pixel < inner) return;
    pixel -= inner;
    at += gap;
  }
  int64_t at = 0;           ///< index of the element in the images
  int64_t pixel = 0;        ///< its index in its image
  int64_t left;             ///< elements from here to the end of the part
  int64_t step;             ///< elements from one to the next
  int64_t inner;            ///< pixels of an image
  int64_t gap;              ///< elements of the other channels of an image
  int64_t step_pixels = 0;  ///< of a step, beyond whole images
  int64_t step_at = 0;      ///< difference of `at`, if both are in the same row of images
};

/// sums[row] = {sum of x, sum of squares of x} of a part.
template <typename T = float>
struct NormSums {
  NormParts of;  ///< dims of x
  const T* x;    ///< images
  double* sums;  ///< [rows, 2]
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    double plain = 0;
    double squares = 0;
    for (PartWalk walk(of, team, row); walk.more(); walk.next()) {
      const auto value = static_cast<double>(static_cast<float>(x[walk.at]));
      plain += value;
      squares += value * value;  // exact, so that differences of sums lose nothing that f32 has
    }
    plain = team.sum(plain);
    squares = team.sum(squares);
    if (team.rank() != 0) return;
    sums[row * 2] = plain;
    sums[row * 2 + 1] = squares;
  }
};

/// Batch normalization of a part with the statistics of the batch. Pointers to vectors with one
/// element per channel may be null, except mean and variance. y may be x.
template <typename T = float>
struct NormTraining {
  NormParts of;            ///< dims of x and y
  const double* sums;      ///< result of NormSums
  const T* x;              ///< images
  T* y;                    ///< result, with the dims of x
  const float* scale;      ///< null: 1
  const float* bias;       ///< null: 0
  const float* mean;       ///< running mean before this batch
  const float* variance;   ///< running variance before this batch
  float* mean_out;         ///< running mean after this batch
  float* variance_out;     ///< running variance after this batch
  float* saved_mean;       ///< mean of this batch, for the gradient
  float* saved_deviation;  ///< 1 / sqrt(variance + epsilon)
  float momentum;          ///< weight of the old running statistics
  float epsilon;           ///< added to the variance
  bool relu;               ///< results below 0, and NaN, become 0
  const T* z;              ///< added before relu, with the dims of x; null: 0; may be y
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t c = of.channel(row);
    const auto count = static_cast<double>(of.images.of_channel());
    const double middle = of.total(sums, c, 0) / count;
    const double raw = of.total(sums, c, 1) / count - middle * middle;
    const double spread = raw < 0 ? 0 : raw;  // NaN is kept
    const double deviation = 1.0 / std::sqrt(spread + static_cast<double>(epsilon));
    const auto m = static_cast<float>(middle);
    const auto factor = static_cast<float>(deviation) * (scale == nullptr ? 1.0F : scale[c]);
    const float summand = bias == nullptr ? 0.0F : bias[c];
    for (PartWalk walk(of, team, row); walk.more(); walk.next()) {
      const int64_t at = walk.at;
      const float added = z == nullptr ? 0.0F : static_cast<float>(z[at]);
      const float value = (static_cast<float>(x[at]) - m) * factor + summand + added;
      y[at] = static_cast<T>(relu && !(value > 0.0F) ? 0.0F : value);
    }
    if (team.rank() != 0 || row % of.parts != 0) return;
    const float old = momentum;
    if (mean_out != nullptr) mean_out[c] = mean[c] * old + m * (1.0F - old);
    if (variance_out != nullptr)
      variance_out[c] = variance[c] * old + static_cast<float>(spread) * (1.0F - old);
    if (saved_mean != nullptr) saved_mean[c] = m;
    if (saved_deviation != nullptr) saved_deviation[c] = static_cast<float>(deviation);
  }
};

/// Element i with running statistics. y may be x.
template <typename T = float>
struct NormInference {
  NormImages images;      ///< dims of x and y
  const T* x;             ///< images
  T* y;                   ///< result, with the dims of x
  const float* scale;     ///< null: 1
  const float* bias;      ///< null: 0
  const float* mean;      ///< running mean
  const float* variance;  ///< running variance
  float epsilon;
  bool relu;  ///< negative results and NaN become 0
  constexpr void operator()(int64_t i) const {
    const int64_t c = i / images.inner % images.channels;
    const float deviation = 1.0F / std::sqrt(variance[c] + epsilon);
    const float factor = deviation * (scale == nullptr ? 1.0F : scale[c]);
    const float summand = bias == nullptr ? 0.0F : bias[c];
    const float value = (static_cast<float>(x[i]) - mean[c]) * factor + summand;
    y[i] = static_cast<T>(relu && !(value > 0.0F) ? 0.0F : value);
  }
};

/// What both steps of the gradient of a batch normalization read.
template <typename T = float>
struct NormGradient {
  NormParts of;            ///< dims of x, dy and all other images
  const T* x;              ///< images before the normalization
  const T* dy;             ///< gradient of the result
  const float* mean;       ///< that the forward op subtracted
  const float* deviation;  ///< 1 / sqrt(variance + epsilon); the variance if constant
  float epsilon;           ///< used with constant statistics only
  bool constant;           ///< statistics are running ones, not functions of x
  const T* y;              ///< result of a rectifier after the normalization; null: there is none
  const T* more;           ///< second summand of the gradient of the result; null: 0
  T* dz;                   ///< gradient of another image that was added, or null; may be dy or more

  [[nodiscard]] constexpr float inverse(int64_t c) const {
    return constant ? 1.0F / std::sqrt(deviation[c] + epsilon) : deviation[c];
  }
  /// The gradient of the normalized image.
  [[nodiscard]] constexpr float incoming(int64_t at) const {
    if (y != nullptr && !(static_cast<float>(y[at]) > 0.0F)) return 0.0F;
    const auto first = static_cast<float>(dy[at]);
    return more == nullptr ? first : first + static_cast<float>(more[at]);
  }
};

/// sums[row] = {sum of the incoming gradient, sum of its product with the normalized x}. Also
/// writes dz.
template <typename T = float>
struct NormBackwardSums {
  NormGradient<T> g;  ///< operands
  double* sums;       ///< [rows, 2]
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t c = g.of.channel(row);
    const float m = g.mean[c];
    const float inverse = g.inverse(c);
    double plain = 0;
    double times = 0;
    for (PartWalk walk(g.of, team, row); walk.more(); walk.next()) {
      const float grad = g.incoming(walk.at);
      if (g.dz != nullptr) g.dz[walk.at] = static_cast<T>(grad);
      plain += static_cast<double>(grad);
      const float away = (static_cast<float>(g.x[walk.at]) - m) * inverse;
      times += static_cast<double>(grad) * static_cast<double>(away);
    }
    plain = team.sum(plain);
    times = team.sum(times);
    if (team.rank() != 0) return;
    sums[row * 2] = plain;
    sums[row * 2 + 1] = times;
  }
};

/// Gradients of a part, after NormBackwardSums. With constant statistics, the statistics do not
/// depend on x. dx may be dy or more; dx, dscale and dbias may be null.
template <typename T = float>
struct NormBackward {
  NormGradient<T> g;   ///< operands
  const double* sums;  ///< result of NormBackwardSums
  const float* scale;  ///< null: 1
  T* dx;               ///< gradient of x
  float* dscale;       ///< sum of dy * (x - mean) * deviation
  float* dbias;        ///< sum of dy
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t c = g.of.channel(row);
    const float m = g.mean[c];
    const float inverse = g.inverse(c);
    const double plain = g.of.total(sums, c, 0);
    const double times = g.of.total(sums, c, 1);
    const auto count = static_cast<double>(g.of.images.of_channel());
    const float factor = (scale == nullptr ? 1.0F : scale[c]) * inverse;
    const auto of_mean = static_cast<float>(plain / count);
    const auto of_spread = static_cast<float>(times / count);
    for (PartWalk walk(g.of, team, row); dx != nullptr && walk.more(); walk.next()) {
      const int64_t at = walk.at;
      const float away = (static_cast<float>(g.x[at]) - m) * inverse;
      const float grad = g.dz != nullptr ? static_cast<float>(g.dz[at]) : g.incoming(at);
      dx[at] =
          static_cast<T>(g.constant ? grad * factor : (grad - of_mean - away * of_spread) * factor);
    }
    if (team.rank() != 0 || row % g.of.parts != 0) return;
    if (dscale != nullptr) dscale[c] = static_cast<float>(times);
    if (dbias != nullptr) dbias[c] = static_cast<float>(plain);
  }
};

}  // namespace millrace::gpu
