#pragma once

#include <cstdint>
#include <vector>

#include "framework/var.h"

/// Which elements of a parameter a check of gradients looks at. The same seed gives the same choice
/// on every machine.
namespace millrace::executor {

/// Positions in a gradient, ascending: half of them where it is not zero, so that rows that a batch
/// has not touched do not take all, the others anywhere.
/// \param count  how many; 0, or not less than there are: all
std::vector<int64_t> sample_elements(const std::vector<double>& gradient, int64_t count,
                                     uint64_t seed);

/// So many numbers, each 1 or -1.
std::vector<double> random_signs(size_t count, uint64_t seed);

/// Indices of a position in a row-major tensor.
std::vector<int64_t> indices_of(int64_t position, llvm::ArrayRef<int64_t> dims);

}  // namespace millrace::executor
