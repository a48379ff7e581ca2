#pragma once

#include <functional>

namespace millrace::standin {

/// Runs work of a device. Returns false if it accessed memory that it must not touch; the work then
/// ended in the middle. Any other access of device memory ends the process as usual, after a
/// message.
/// \param is_device_memory  true for addresses of devices, for the message
bool run_guarded(const std::function<void()>& work, bool (*is_device_memory)(const void*));

}  // namespace millrace::standin
