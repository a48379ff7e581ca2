#pragma once

#include <memory>

#include "kernels/gpu/communicator.h"
#include "kernels/gpu/device.h"

namespace millrace::gpu {

/// Collectives of emulated devices (host_device.h), for tests. Ranks may be threads of one process,
/// which synchronize under a lock; errors name the ranks that do not arrive, have left or make
/// another call. Or ranks are processes, which exchange values by CommunicatorPlace::gather. Work
/// is done when the call that queues it returns, so the deadline applies to each call. Elements are
/// combined in rank order.
/// \param device  must outlive what is made
std::unique_ptr<Collectives> make_host_collectives(Device& device);

}  // namespace millrace::gpu
