#pragma once

#include <cstdint>

/// Calls of operator new in this program since it began; for programs that link
/// count_allocations.cc.
int64_t allocations();
