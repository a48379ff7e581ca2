#pragma once

#include <functional>
#include <string>

#include <cuda_runtime_api.h>

/// What the stand-in's runtime offers to its libraries, to kernels and to tests, beside the
/// functions of CUDA. Thread-safety: concurrent calls.
namespace millrace::standin {

/// Says what queued work did. kLater: it waits for another rank and must be called again.
enum class Progress { kDone, kLater };
using Work = std::function<Progress()>;

/// Queues work in a stream, or adds it to the graph that the stream captures.
/// \param what  for messages
/// Errors: cudaErrorInvalidResourceHandle for an unknown stream, or one of another device than the
/// current one; the error of earlier work of the device.
cudaError_t enqueue(cudaStream_t stream, const std::string& what, Work work);

/// Queues a kernel; thread_body is called for each thread (grid.h).
cudaError_t launch(const cudaLaunchConfig_t* config, std::function<void()> thread_body);

/// Ends the queued work that calls it with an error that every later call of its device returns.
[[noreturn]] void fail_work(cudaError_t error, const std::string& why);

/// Prints why a call is refused: the stand-in says more than an error code can.
void explain(const std::string& why);

/// The device of a live stream; -1 if the stream is unknown.
int device_of(cudaStream_t stream);
/// True if the range is within an allocation of the device that the host has not freed.
bool is_on_device(const void* data, size_t bytes, int device);
/// True while the stream captures a graph.
bool is_capturing(cudaStream_t stream);

/// Counts what a library has made, and what it has destroyed (-1), for live().
void count_handle(int change);

/// Everything that has been created and not been destroyed.
struct Live {
  size_t allocations = 0;
  size_t streams = 0;
  size_t events = 0;
  size_t graphs = 0;   ///< executable ones included
  size_t handles = 0;  ///< of libraries, with descriptors
};
Live live();

}  // namespace millrace::standin
