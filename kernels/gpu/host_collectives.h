#pragma once

#include <memory>

#include "kernels/gpu/communicator.h"
#include "kernels/gpu/device.h"

namespace millrace::gpu {

/// Collectives of emulated devices (host_device.h), for tests: the ranks are threads of one process
/// that meet under a lock, and that name ranks which do not come, have left or make another call;
/// or processes, where CommunicatorPlace::gather says how values get from one to another. What was
/// queued is done when the call returns, so the deadline is that of each call. Elements are
/// combined in the order of ranks.
/// \param device  must outlive what is made
std::unique_ptr<Collectives> make_host_collectives(Device& device);

}  // namespace millrace::gpu
