#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ps/transport/transport.h"

namespace millrace::ps {

/// Records the calls and ops of one process as a Chrome trace: one complete event each, with one
/// row per thread. A flow leads from where a call was made to where it was answered. Its id is
/// derived from the call (trainer, incarnation, epoch, sequence), so that traces of several
/// processes can be joined on one time axis. Thread-safety: all members.
class CallTrace {
 public:
  using Clock = std::chrono::system_clock;

  /// \param served  the call was answered by this process, not made by it
  void add(const Request& request, const std::string& server, bool served, Clock::time_point begin,
           Clock::time_point end, bool ok);

  /// Returns an id for a call without a number.
  uint64_t next_read() { return kTraceBit | ++reads_; }
  /// Records an op that has run in the current thread.
  void add_op(std::string_view type, Clock::time_point begin, Clock::time_point end);

  /// Formats the trace as {"traceEvents": [...], "origin_us": T}. Times are in microseconds since
  /// T, which is relative to the epoch of the system clock. \param role  name of the process, such
  /// as "trainer 0"
  [[nodiscard]] std::string chrome_json(const std::string& role) const;

 private:
  struct Event {
    std::string name;
    std::string server;  ///< empty: an op
    std::string items;
    int trainer;
    int64_t step;
    uint64_t flow;  ///< 0: none
    bool numbered;  ///< the call has a sequence number
    int thread;
    bool served;
    bool ok;
    Clock::time_point begin;
    Clock::time_point end;
  };
  int number_of_thread();

  mutable std::mutex mutex_;
  std::atomic<uint64_t> reads_{0};
  std::vector<Event> events_;
  std::map<std::thread::id, int> threads_;
};

/// Wraps a transport so that its calls are recorded in a trace.
/// \param trace  must outlive the transport and all objects that it creates
std::shared_ptr<Transport> make_tracing_transport(std::shared_ptr<Transport> transport,
                                                  CallTrace& trace);

}  // namespace millrace::ps
