#pragma once

#include <cstddef>

namespace millrace::standin {

/// Bytes of an element of an NCCL type; 0 if the stand-in lacks the type.
size_t bytes_of(int type);

/// into[i] = into[i] op from[i] for that many elements of an NCCL type.
void combine(int type, int op, std::byte* into, const std::byte* from, size_t count);

}  // namespace millrace::standin
