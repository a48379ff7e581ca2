#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

/// The declarations of cuBLASLt for code that is built for the stand-in
/// (tests/cuda_standin/README.md). Not NVIDIA's header.
#include "tests/cuda_standin/include/blas_types.h"

extern "C" {
#include "tests/cuda_standin/include/blas_functions.h"
}
