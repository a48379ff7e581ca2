#pragma once

#include "kernels/cpu/onednn.h"

namespace millrace::kernels {

/// Where the weights of a convolution by Winograd's method come from.
enum class WinogradWeights : uint8_t {
  kPacked,    ///< transformed once, read by every run
  kEachRun,   ///< transformed in every run
  kGradient,  ///< the result, transformed back
};

/// Whether Winograd's method (dnn::Convolution::winograd) is expected to be faster than the direct
/// one: windows of 3 x 3 in steps of 1, and so many places in all images that the weights, which
/// grow four times, are not what the run waits for.
bool winograd_pays(const dnn::Convolution& spec, WinogradWeights weights);

}  // namespace millrace::kernels
