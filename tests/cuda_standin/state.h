#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_standin/memory.h"
#include "tests/cuda_standin/runtime.h"

namespace millrace::standin {

struct Stream;
struct Graph;

/// Work in a stream, or a node of a graph.
struct Item {
  uint64_t number = 0;  ///< in the order in which the process queued it
  std::string what;
  Work work;
};

/// A capture in progress: nodes in the order of the calls, which respects their dependencies.
struct Capture {
  Stream* origin = nullptr;  ///< began it and must end it
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool is_valid = true;
  std::shared_ptr<Graph> graph;
  /// For each stream that takes part, the number of nodes up to its last one, and the nodes of
  /// other streams that it has waited for.
  std::map<Stream*, size_t> last;
  std::map<Stream*, std::map<Stream*, size_t>> seen;
};

struct Stream {
  int device = 0;
  bool is_blocking = false;  ///< ordered with the default stream
  std::deque<Item> items;    ///< not done yet
  std::shared_ptr<Capture> capture;
  bool was_asked = false;  ///< cudaStreamQuery() has said "not ready" since work was queued
};

struct Event {
  int device = 0;
  Stream* stream = nullptr;  ///< null: not recorded, or its stream is gone
  uint64_t number = 0;       ///< last item of the stream before the record
  bool timed = true;         ///< false: created without timing
  std::shared_ptr<Capture> capture;
  std::map<Stream*, size_t> seen;  ///< what a stream that waits for it has waited for
};

/// The nodes of a graph. Memory that its nodes allocate keeps its addresses for its lifetime.
struct Graph {
  explicit Graph(int owner) : device(owner) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  int device;
  std::vector<Item> nodes;
  std::set<void*> allocations;  ///< made by its nodes
};

/// A graph, or an executable one.
struct GraphHandle {
  std::shared_ptr<Graph> graph;
  bool is_executable = false;
};

/// A device, its default stream, and the error that ended its work.
struct DeviceState {
  DeviceMemory memory;
  Stream default_stream;
  cudaError_t error = cudaSuccess;
};

/// All state of the stand-in: one per process, like that of CUDA. Callers hold `lock`.
class State {
 public:
  static State& get();

  std::recursive_mutex lock;
  std::vector<std::unique_ptr<DeviceState>> devices;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<GraphHandle*> graphs;
  std::map<std::byte*, size_t> pinned;
  size_t handles = 0;

  /// The stream of a handle; null if unknown. The null handle is the current device's default one.
  Stream* find(cudaStream_t stream);
  DeviceState& device_of(const Stream& stream) {
    return *devices[static_cast<size_t>(stream.device)];
  }
  /// Adds work without the checks of enqueue().
  void queue(Stream& stream, const std::string& what, Work work);
  /// Runs the work of a stream up to that number. False if it waits for another rank.
  bool run(Stream& stream, uint64_t number);
  /// Runs work until done() is true; lets other threads go on meanwhile.
  void run_until(std::unique_lock<std::recursive_mutex>& held, const std::function<bool()>& done);
  bool run_all(int device);
  [[nodiscard]] bool is_done(const Event& event) const;
  bool run(const Event& event);

 private:
  State();
  bool run_items(Stream& stream, uint64_t number);
  bool run_before(Stream& stream, uint64_t number);
  void open(int device);

  uint64_t last_number_ = 0;
  int depth_ = 0;         ///< of run()
  int open_device_ = -1;  ///< whose memory is open
};

/// The device that the thread has selected.
int& current_device();

}  // namespace millrace::standin
