#pragma once

#include <cstddef>

/// The declarations of the CUDA runtime for code that is built for the stand-in
/// (tests/cuda_standin/README.md). Not NVIDIA's header.
#include "tests/cuda_standin/include/cuda_types.h"

/// Flags of streams and events; macros as in NVIDIA's header.
#define cudaStreamNonBlocking kStreamNonBlocking
#define cudaEventDisableTiming kEventDisableTiming

extern "C" {
#include "tests/cuda_standin/include/cuda_functions.h"
}
