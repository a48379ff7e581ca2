#pragma once

#include <cstdint>
#include <vector>

namespace millrace::transpiler {

/// The permutation of 0..count-1 that NumPy's legacy generator produces (quirk Q2): MT19937 seeded
/// by init_genrand(seed). For i from the last index down to 1, element i is swapped with element j,
/// where j is the first draw that is <= i after masking it to the smallest 2^k - 1 >= i. Source:
/// spec/transpiler.md section 16, with checked values.
std::vector<uint32_t> legacy_shuffle(uint32_t seed, uint32_t count);

}  // namespace millrace::transpiler
