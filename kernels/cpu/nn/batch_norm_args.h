#pragma once

#include "kernels/kernel.h"

namespace millrace::kernels {

/// The arguments that batch_norm, sync_batch_norm and fused ops with a batch normalization have in
/// common, on the CPU and on a GPU. X and Y are images of the same dims and dtype; the others have
/// one element per channel, f32 where the images are 16-bit floats and their dtype otherwise.
struct BatchNormForwardArgs {
  explicit BatchNormForwardArgs(const KernelSetup& op)
      : x(op.input("X")),
        scale(op.input("Scale")),
        bias(op.input("Bias")),
        mean(op.input("Mean")),
        variance(op.input("Variance")),
        y(op.output("Y")),
        mean_out(op.output("MeanOut")),
        variance_out(op.output("VarianceOut")),
        saved_mean(op.output("SavedMean")),
        saved_variance(op.output("SavedVariance")) {}
  ArgIndex x;                           ///< images
  ArgIndex scale, bias;                 ///< optional; 1 and 0 if absent
  ArgIndex mean, variance;              ///< running statistics before the step
  ArgIndex y;                           ///< normalized images
  ArgIndex mean_out, variance_out;      ///< running statistics after it; often the same vars
  ArgIndex saved_mean, saved_variance;  ///< of this batch, for the gradient; the latter holds
                                        ///< 1 / sqrt(variance + epsilon)
};

}  // namespace millrace::kernels
