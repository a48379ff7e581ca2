#pragma once

#include <cmath>
#include <cstdint>

// Functors of batch normalisation on f32 images. Sums are kept in double, so that their order,
// which depends on the size of the team, hardly matters.
namespace millrace::gpu {

/// Images [batch, channels, inner] that are normalised by channel.
struct NormImages {
  int64_t batch;     ///< images
  int64_t channels;  ///< each is normalised with statistics over batch and inner
  int64_t inner;     ///< pixels of one channel of one image
  /// Number of elements of a channel.
  [[nodiscard]] constexpr int64_t of_channel() const { return batch * inner; }
};

/// Every step-th element of a channel. Divides twice only, because divisions cost more than the
/// arithmetic of the functors.
struct ChannelWalk {
  template <typename Team>
  constexpr ChannelWalk(const NormImages& images, const Team& team, int64_t channel)
      : at((team.rank() / images.inner * images.channels + channel) * images.inner +
           team.rank() % images.inner),
        pixel(team.rank() % images.inner),
        left(images.of_channel() - team.rank()),
        step(team.size()),
        step_pixels(team.size() % images.inner),
        step_at(team.size() / images.inner * images.channels * images.inner + step_pixels),
        inner(images.inner),
        gap((images.channels - 1) * images.inner) {}
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
  int64_t at;           ///< index of the element in the images
  int64_t pixel;        ///< its index in its image
  int64_t left;         ///< elements from here to the end of the channel
  int64_t step;         ///< elements from one to the next
  int64_t step_pixels;  ///< of it, beyond whole images
  int64_t step_at;      ///< difference of `at`, if both are in the same row of images
  int64_t inner;        ///< pixels of an image
  int64_t gap;          ///< elements of the other channels of an image
};

/// Batch normalisation of one channel with the statistics of the batch. Pointers to vectors with
/// one element per channel may be null, except mean and variance. y may be x.
struct NormTraining {
  NormImages images;       ///< dims of x and y
  const float* x;          ///< images
  float* y;                ///< result, with the dims of x
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
  bool relu;               ///< results below 0 become 0
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t c) const {
    const int64_t count = images.of_channel();
    // Two passes: the variance is summed from the distances to the mean, which loses fewer digits
    // than a difference of sums of squares.
    double part = 0;
    for (ChannelWalk walk(images, team, c); walk.more(); walk.next())
      part += static_cast<double>(x[walk.at]);
    const double middle = team.sum(part) / static_cast<double>(count);
    part = 0;
    for (ChannelWalk walk(images, team, c); walk.more(); walk.next()) {
      const double away = static_cast<double>(x[walk.at]) - middle;
      part += away * away;
    }
    const double spread = team.sum(part) / static_cast<double>(count);
    const double deviation = 1.0 / std::sqrt(spread + static_cast<double>(epsilon));
    const auto m = static_cast<float>(middle);
    const auto factor = static_cast<float>(deviation) * (scale == nullptr ? 1.0F : scale[c]);
    const float summand = bias == nullptr ? 0.0F : bias[c];
    for (ChannelWalk walk(images, team, c); walk.more(); walk.next()) {
      const int64_t at = walk.at;
      const float value = (x[at] - m) * factor + summand;
      y[at] = relu && value < 0.0F ? 0.0F : value;
    }
    if (team.rank() != 0) return;
    const float old = momentum;
    if (mean_out != nullptr) mean_out[c] = mean[c] * old + m * (1.0F - old);
    if (variance_out != nullptr)
      variance_out[c] = variance[c] * old + static_cast<float>(spread) * (1.0F - old);
    if (saved_mean != nullptr) saved_mean[c] = m;
    if (saved_deviation != nullptr) saved_deviation[c] = static_cast<float>(deviation);
  }
};

/// Element i with running statistics. y may be x.
struct NormInference {
  NormImages images;  ///< dims of x and y
  const float* x;
  float* y;
  const float* scale;     ///< null: 1
  const float* bias;      ///< null: 0
  const float* mean;      ///< running mean
  const float* variance;  ///< running variance
  float epsilon;
  bool relu;  ///< negative results become 0
  constexpr void operator()(int64_t i) const {
    const int64_t c = i / images.inner % images.channels;
    const float deviation = 1.0F / std::sqrt(variance[c] + epsilon);
    const float factor = deviation * (scale == nullptr ? 1.0F : scale[c]);
    const float value = (x[i] - mean[c]) * factor + (bias == nullptr ? 0.0F : bias[c]);
    y[i] = relu && value < 0.0F ? 0.0F : value;
  }
};

/// Gradients of one channel. With constant statistics, the statistics do not depend on x. dx may be
/// dy; dx, dscale and dbias may be null.
struct NormBackward {
  NormImages images;  ///< dims of x, dy and dx
  const float* x;
  const float* dy;         ///< gradient of the result
  const float* scale;      ///< null: 1
  const float* mean;       ///< that the forward op subtracted
  const float* deviation;  ///< 1 / sqrt(variance + epsilon); the variance if constant
  float* dx;               ///< gradient of x
  float* dscale;           ///< sum of dy * (x - mean) * deviation
  float* dbias;            ///< sum of dy
  float epsilon;           ///< used with constant statistics only
  bool constant;           ///< statistics are running ones, not functions of x
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t c) const {
    const int64_t count = images.of_channel();
    const float m = mean[c];
    const float inverse = constant ? 1.0F / std::sqrt(deviation[c] + epsilon) : deviation[c];
    double plain_part = 0;
    double times_part = 0;
    for (ChannelWalk walk(images, team, c); walk.more(); walk.next()) {
      const int64_t at = walk.at;
      const auto grad = static_cast<double>(dy[at]);
      plain_part += grad;
      times_part += grad * static_cast<double>((x[at] - m) * inverse);
    }
    const double plain = team.sum(plain_part);
    const double times = team.sum(times_part);
    const float factor = (scale == nullptr ? 1.0F : scale[c]) * inverse;
    const auto of_mean = static_cast<float>(plain / static_cast<double>(count));
    const auto of_spread = static_cast<float>(times / static_cast<double>(count));
    for (ChannelWalk walk(images, team, c); dx != nullptr && walk.more(); walk.next()) {
      const int64_t at = walk.at;
      const float away = (x[at] - m) * inverse;
      dx[at] = constant ? dy[at] * factor : (dy[at] - of_mean - away * of_spread) * factor;
    }
    if (team.rank() != 0) return;
    if (dscale != nullptr) dscale[c] = static_cast<float>(times);
    if (dbias != nullptr) dbias[c] = static_cast<float>(plain);
  }
};

}  // namespace millrace::gpu
