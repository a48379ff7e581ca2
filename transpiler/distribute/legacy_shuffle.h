#pragma once

#include <cstdint>
#include <vector>

namespace millrace::transpiler {

/// Permutation that NumPy's legacy generator makes of 0..count-1 (quirk Q2): MT19937 seeded by
/// init_genrand(seed); for i from the end down to 1, i swaps with the first draw that, masked to
/// the smallest 2^k - 1 >= i, is <= i. Source: spec/transpiler.md section 16, with checked values.
std::vector<uint32_t> legacy_shuffle(uint32_t seed, uint32_t count);

}  // namespace millrace::transpiler
