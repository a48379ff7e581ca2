// Capture of graphs, and their launch.

#include "tests/cuda_standin/api.h"

namespace millrace::standin {
namespace {

GraphHandle* find_graph(State& state, void* graph, bool is_executable) {
  auto* const found = static_cast<GraphHandle*>(graph);
  if (state.graphs.count(found) == 0 || found->is_executable != is_executable) return nullptr;
  return found;
}

GraphHandle* add_graph(State& state, std::shared_ptr<Graph> graph, bool is_executable) {
  auto* const made = new GraphHandle{std::move(graph), is_executable};
  state.graphs.insert(made);
  return made;
}

cudaError_t drop_graph(void* graph, bool is_executable, const char* function) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  GraphHandle* const found = find_graph(state, graph, is_executable);
  if (found == nullptr) return finish(cudaErrorInvalidValue, function, "unknown graph");
  state.graphs.erase(found);
  delete found;
  return cudaSuccess;
}

// Every stream that took part must have been waited for by the one that began.
bool is_joined(const Capture& capture) {
  for (const auto& [stream, node] : capture.last) {
    const auto& seen = capture.seen.at(capture.origin);
    const auto found = seen.find(stream);
    if (found == seen.end() || found->second < node) return false;
  }
  return true;
}

// Memory that nodes allocate must be freed by nodes, or a second launch would allocate it twice.
bool frees_all(const State& state, const Graph& graph) {
  const DeviceMemory& memory = state.devices[static_cast<size_t>(graph.device)]->memory;
  for (const void* const data : graph.allocations) {
    if (memory.holds(data, 1)) return false;
  }
  return true;
}

}  // namespace
}  // namespace millrace::standin

using namespace millrace::standin;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
  const StreamCall call("cudaStreamBeginCapture", handle);
  if (call.stream() == nullptr) return call.finish();
  Stream& stream = *call.stream();
  if (handle == nullptr || stream.capture != nullptr)
    return call.refuse_in_capture("capturing the default stream, or a second time");
  stream.capture = std::make_shared<Capture>();
  stream.capture->origin = &stream;
  stream.capture->mode = mode;
  stream.capture->graph = std::make_shared<Graph>(stream.device);
  stream.capture->seen[&stream][&stream] = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const StreamCall call("cudaStreamEndCapture", handle);
  if (call.stream() == nullptr) return call.finish();
  const std::shared_ptr<Capture> capture = call.stream()->capture;
  if (graph == nullptr || capture == nullptr)
    return call.refuse(cudaErrorInvalidValue, "null, or the stream does not capture");
  *graph = nullptr;
  if (capture->origin != call.stream())
    return call.refuse(cudaErrorStreamCaptureUnmatched, "another stream began");
  for (Stream* const stream : call.state().streams) {
    if (stream->capture == capture) stream->capture = nullptr;
  }
  if (!capture->is_valid) return call.refuse(cudaErrorStreamCaptureInvalidated, "");
  if (!is_joined(*capture))
    return call.refuse(cudaErrorStreamCaptureUnjoined, "a stream was not waited for");
  if (!frees_all(call.state(), *capture->graph))
    return call.refuse(cudaErrorInvalidValue, "memory that the graph allocates outlives it");
  *graph = reinterpret_cast<cudaGraph_t>(add_graph(call.state(), capture->graph, false));
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus* status) {
  const StreamCall call("cudaStreamIsCapturing", handle);
  if (call.stream() == nullptr) return call.finish();
  if (status == nullptr) return call.refuse(cudaErrorInvalidValue, "null");
  const Capture* const capture = call.stream()->capture.get();
  *status = capture == nullptr  ? cudaStreamCaptureStatusNone
            : capture->is_valid ? cudaStreamCaptureStatusActive
                                : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  GraphHandle* const found = find_graph(state, graph, false);
  if (exec == nullptr || found == nullptr || flags != 0)
    return finish(cudaErrorInvalidValue, "cudaGraphInstantiate", "unknown graph, null or flags");
  *exec = reinterpret_cast<cudaGraphExec_t>(add_graph(state, found->graph, true));
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const StreamCall call("cudaGraphLaunch", stream);
  if (call.stream() == nullptr) return call.finish();
  const GraphHandle* const found = find_graph(call.state(), exec, true);
  if (found == nullptr) return call.refuse(cudaErrorInvalidValue, "unknown graph");
  if (call.stream()->capture != nullptr) return call.refuse_in_capture("launching a graph");
  if (found->graph->device != call.stream()->device)
    return call.refuse(cudaErrorInvalidValue, "the graph belongs to another device");
  for (const Item& node : found->graph->nodes) {
    // the graph lives until its nodes are done
    call.state().queue(*call.stream(), node.what + " of a graph",
                       [work = node.work, graph = found->graph] { return work(); });
  }
  return finish(call.device().error, "cudaGraphLaunch");
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return drop_graph(graph, false, "cudaGraphDestroy");
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return drop_graph(exec, true, "cudaGraphExecDestroy");
}

}  // extern "C"
