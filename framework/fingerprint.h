#pragma once

#include <cstdint>

#include "framework/program.h"

namespace millrace {

/// 64-bit hash of the whole content of a program: xxHash64 of its canonical export.
///
/// Equal programs have equal fingerprints, even if the fields of their files are in a different
/// order. Interned names that are not used do not matter. The value is the same on every machine
/// and may change between versions. Cost: that of an export. Thread-safety: pure.
uint64_t fingerprint(const Program& program);

}  // namespace millrace
