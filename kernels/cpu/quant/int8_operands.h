#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/int8_loops.h"
#include "kernels/cpu/layouts.h"
#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

// What the ops that multiply 8-bit integers (int8_conv2d, int8_fc) do with their operands.
namespace millrace::kernels {

/// The weights of one op as integers, made once and again whenever the weights change, and the
/// scale of its input.
///
/// A product of integers is exact, and equals what the program computed before the pass
/// int8-products, where floats hold rounded values, up to the rounding of its float sums. Where
/// integers cannot be used (see fits()), kernels multiply those floats.
/// Thread-safety: one call at a time.
class Int8Operands {
 public:
  /// \param weights_slot  the slot of the weights
  /// \param channel_dim   dim of the weights that counts output channels: 0, or 1 for matrices
  Int8Operands(const KernelSetup& op, llvm::StringRef weights_slot, size_t channel_dim);

  /// Reads the scales, quantizes the weights if they have changed, and writes OutWeightScale.
  /// Errors: element types or counts that do not fit; kResource.
  Status update(const KernelContext& ctx);
  /// Changes whenever integers() or a scale changes, so that what was made of them is outdated.
  [[nodiscard]] int64_t version() const { return version_; }

  /// False if the processor, the scale of the input (0, not finite), or the weights (not finite,
  /// or no integers) rule out integers. steps() and rounded() are valid nevertheless.
  [[nodiscard]] bool fits() const { return fits_; }
  /// The weights as int8, row-major, and in the layout of a primitive; only if fits(). Errors:
  /// kResource, kExecution.
  [[nodiscard]] const Tensor& integers() const { return integers_; }
  StatusOr<const Tensor*> integers_in(CpuDevice& device, const LayoutPtr& layout);
  /// The factor of each output channel that turns a sum of products into a float: value of one
  /// unit of the input times that of the weights. \param factors  further factors, or empty
  /// \returns nullopt if a factor that is not 1 makes one 0 or too small to divide by
  [[nodiscard]] std::optional<std::vector<float>> scales(llvm::ArrayRef<float> factors) const;

  /// Rounds the input to int8, or to uint8 if no integer is negative, which processors multiply
  /// faster; in the order of its elements, which must be row-major or in blocks of channels.
  /// \returns false if a NaN is among them. Errors: kResource.
  StatusOr<bool> round(CpuDevice& device, const Tensor& input, Tensor& out) const;
  /// Both operands as floats that hold the rounded values; the input must be row-major, and may
  /// hold integers already (OutScale of the op that made it).
  Status round_floats(const Tensor& input, Tensor& out) const;
  Status rounded_weights(const Tensor& weights, llvm::ArrayRef<float> factors, Tensor& out) const;

 private:
  /// One value, or one for each channel; empty without the input.
  StatusOr<std::vector<float>> values_of(const KernelContext& ctx, ArgIndex arg, const char* slot,
                                         const Tensor& weights) const;
  /// Finds the scales if none are given, and fills integers_.
  Status quantize(const Tensor& weights);
  /// Calls body(output channel, first element, count) for runs of weights of one channel.
  template <typename Body>
  void for_runs(const Tensor& weights, Body&& body) const;

  ArgIndex in_scale_, weight_scale_, zero_point_, out_weight_scale_, weights_;
  size_t channel_dim_;
  bool input_half_even_, weights_half_even_;
  bool channel_wise_;  ///< a scale for each channel, found in the weights
  bool are_integers_;  ///< weights are not to be rounded
  float fixed_scale_;  ///< 0: none
  int64_t version_ = 0;
  bool fits_ = false;
  bool weights_fit_ = false;
  float scale_ = 0;            ///< of the input
  LayoutPtr seen_;             ///< mark of the weights that integers_ were made of
  std::vector<float> scales_;  ///< of the weights: one, or one for each channel
  std::vector<float> given_;   ///< those that the op was given in the last run
  Tensor integers_;
  std::vector<std::unique_ptr<Tensor>> packed_;  ///< copies in other layouts
};

/// True if a scale can be divided by; the fake_quantize ops treat smaller ones as 0.
bool is_usable_scale(float scale);

/// nullopt if the library has no such primitive. Errors: all others.
StatusOr<std::optional<dnn::Primitive>> if_implemented(StatusOr<dnn::Primitive> made);

/// bias[c] / scales[c], as the library adds a bias before it scales. Errors: kResource; a bias that
/// has not one f32 for each scale.
Status unscaled_bias(const Tensor& bias, llvm::ArrayRef<float> scales, Tensor& out);

}  // namespace millrace::kernels
