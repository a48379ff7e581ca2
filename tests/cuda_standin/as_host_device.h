#pragma once

/// Makes a test of the emulated device a test of the CUDA device on the stand-in: it is included
/// before the test, whose calls of open_host_device() then open GPU 0, 1, 2, 3, 0, ...
/// (as_host_device.cc).
#define open_host_device open_next_gpu
