#pragma once

#include <cstdint>

namespace millrace::kernels {

class CpuDevice;

/// Where the random numbers of a device stand: what CpuDevice::next_seed() gives from now on
/// follows from it alone, and kernels keep no other state of random numbers. A device that is set
/// to a position goes on as the one that had it.
uint64_t random_position(CpuDevice& device);
void set_random_position(CpuDevice& device, uint64_t position);

}  // namespace millrace::kernels
