#pragma once

#include <cstdint>

#include "framework/program.h"

namespace millrace {

/// 64-bit hash of everything a program says: xxHash64 of its canonical export.
///
/// Equal programs have equal fingerprints, whatever order the fields of their files stand in; names
/// that are interned but not used do not count. The value is the same on every machine and may
/// change between versions. Cost: that of an export. Thread-safety: pure.
uint64_t fingerprint(const Program& program);

}  // namespace millrace
