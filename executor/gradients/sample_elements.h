#pragma once

#include <cstdint>
#include <vector>

#include "framework/var.h"

/// Chooses the elements of a parameter that a gradient check examines. The same seed gives the same
/// choice on every machine.
namespace millrace::executor {

/// Positions in a gradient, ascending. Half of them are where it is not zero, so that rows that a
/// batch did not use do not dominate; the others are anywhere.
/// \param count  number of positions; 0, or at least the number of elements: all
std::vector<int64_t> sample_elements(const std::vector<double>& gradient, int64_t count,
                                     uint64_t seed);

/// `count` random numbers, each 1 or -1.
std::vector<double> random_signs(size_t count, uint64_t seed);

/// Indices of a position in a row-major tensor.
std::vector<int64_t> indices_of(int64_t position, llvm::ArrayRef<int64_t> dims);

}  // namespace millrace::executor
