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

/// The calls and ops of one process as a Chrome trace: one complete event each, on a line for each
/// thread.
/// Where a call was made a flow begins, where it was answered the flow ends; its id is that of the
/// call (trainer, incarnation, epoch, sequence), so that traces of several processes fit together
/// once they stand on one time axis. Thread-safety: all members.
class CallTrace {
 public:
  using Clock = std::chrono::system_clock;

  /// \param served  answered here, not made here
  void add(const Request& request, const std::string& server, bool served, Clock::time_point begin,
           Clock::time_point end, bool ok);

  /// An id for a call without a number.
  uint64_t next_read() { return kTraceBit | ++reads_; }
  /// An op that has run in this thread.
  void add_op(std::string_view type, Clock::time_point begin, Clock::time_point end);

  /// {"traceEvents": [...], "origin_us": T}: times are in microseconds since T, which counts from
  /// the epoch of the system's clock. \param role  "trainer 0", what the process is called
  [[nodiscard]] std::string chrome_json(const std::string& role) const;

 private:
  struct Event {
    std::string name;
    std::string server;  ///< empty: an op
    std::string items;
    int trainer;
    int64_t step;
    uint64_t flow;  ///< 0: none
    bool numbered;  ///< the call has a number, under which it may be repeated
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

/// The same ways, whose calls are noted in a trace.
/// \param trace  outlives the transport and what it makes
std::shared_ptr<Transport> make_tracing_transport(std::shared_ptr<Transport> transport,
                                                  CallTrace& trace);

}  // namespace millrace::ps
