#pragma once

#include <cstdint>

namespace millrace::kernels {

class CpuDevice;

/// State of the random numbers of a device. The results of later calls of CpuDevice::next_seed()
/// depend on it alone, and kernels keep no other random state. A device that is set to a position
/// continues with the same numbers as the device that the position was read from.
uint64_t random_position(CpuDevice& device);
/// \param position  returned by random_position(), possibly in another process
void set_random_position(CpuDevice& device, uint64_t position);

}  // namespace millrace::kernels
