#pragma once

#include <cstdint>

/// Number of calls of operator new since the program started; for programs that link
/// count_allocations.cc.
int64_t allocations();
