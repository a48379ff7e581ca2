#pragma once

#include "kernels/cpu/onednn.h"

namespace millrace::kernels {

/// Where the weights of a convolution by Winograd's method come from.
enum class WinogradWeights : uint8_t {
  kPacked,    ///< transformed once, then used by every run
  kEachRun,   ///< transformed in every run
  kGradient,  ///< the weights are the result, transformed back
};

/// True if Winograd's method (dnn::Convolution::winograd) is expected to be faster than the direct
/// one: 3 x 3 windows with stride 1, and enough output positions over all images that reading the
/// weights, which become four times as large, does not dominate the run.
bool winograd_pays(const dnn::Convolution& spec, WinogradWeights weights);

}  // namespace millrace::kernels
