#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/observer.h"
#include "framework/base/json_writer.h"

namespace millrace::executor {

/// Times every op. Thread-safety: one run at a time.
class Trace final : public OpObserver {
 public:
  void before(const CompiledOp& compiled) override;
  Status after(const CompiledOp& compiled, Value* const* table) override;

  /// The events as a Chrome trace (chrome://tracing, Perfetto): one complete event per op with
  /// type, block, index, output dims and bytes; times in microseconds since the first op.
  [[nodiscard]] std::string chrome_json() const;

  /// A table of op types by descending time: calls, total ms, share, mean us. The time of a
  /// sub-block counts both for the op that runs it and for the ops inside.
  [[nodiscard]] std::string op_table() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Event {
    const Op* op;
    int64_t start_ns;
    int64_t end_ns;
    std::string outputs;
    int64_t bytes;
  };

  std::vector<Event> events_;
  std::vector<Clock::time_point> open_;  // one for each op that has begun
  Clock::time_point first_{};
};

/// Writes the start of a complete event of the Chrome trace format for one run of an op; the caller
/// adds "tid" and other members.
void begin_op_event(JsonWriter& out, const Op& op);
/// Writes "ts" and "dur" (microseconds) and the start of "args" with the op's block and index; the
/// caller adds members and ends both objects. \param start_ns, end_ns  since the start of the trace
void add_event_times(JsonWriter& out, const Op& op, int64_t start_ns, int64_t end_ns);

}  // namespace millrace::executor
