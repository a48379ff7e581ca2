#include "executor/parallel/timeline.h"

#include <fmt/format.h>

#include "executor/trace.h"
#include "framework/base/json_writer.h"
#include "framework/program.h"

namespace millrace::executor {
namespace timeline {
namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  const Op* op;
  int depth;
  int64_t start_ns;
  int64_t end_ns;
  int64_t bytes;
};

// True for ops in which devices exchange values.
bool is_exchange(const Op& op) {
  return op.type().startswith("exchange_") || op.type() == "shared_updates_end" ||
         op.has_attr("shared_update");
}

}  // namespace
}  // namespace timeline

class Timeline::Lane final : public OpObserver {
 public:
  explicit Lane(timeline::Clock::time_point start) : start_(start) {}

  void before(const CompiledOp& /*compiled*/) override { open_.push_back(now()); }

  Status after(const CompiledOp& compiled, Value* const* table) override {
    timeline::Event event{compiled.op, static_cast<int>(open_.size()) - 1, open_.back(), now(), 0};
    open_.pop_back();
    for (const int32_t index : compiled.outputs) {
      const auto* const tensor = index < 0 ? nullptr : table[index]->get_if<Tensor>();
      if (tensor != nullptr) event.bytes += tensor->bytes();
    }
    events_.push_back(event);
    return Ok();
  }

  [[nodiscard]] const std::vector<timeline::Event>& events() const { return events_; }

 private:
  [[nodiscard]] int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(timeline::Clock::now() - start_)
        .count();
  }

  timeline::Clock::time_point start_;
  std::vector<timeline::Event> events_;
  std::vector<int64_t> open_;  // start times of the ops that are running
};

Timeline::Timeline(int devices) {
  const auto start = timeline::Clock::now();
  for (int d = 0; d < devices; ++d) lanes_.push_back(std::make_unique<Lane>(start));
}

Timeline::~Timeline() = default;

OpObserver& Timeline::lane(int device) {
  return *lanes_[static_cast<size_t>(device)];
}

std::string Timeline::chrome_json() const {
  using namespace timeline;
  JsonWriter out;
  out.begin_object();
  out.key("traceEvents").begin_array();
  for (size_t d = 0; d < lanes_.size(); ++d) {
    const auto tid = static_cast<int64_t>(d);
    out.begin_object();
    out.member("name", "thread_name").member("ph", "M").member("pid", 1).member("tid", tid);
    out.key("args").begin_object();
    out.member("name", fmt::format("device {}", d)).end_object().end_object();
    for (const Event& event : lanes_[d]->events()) {
      begin_op_event(out, *event.op);
      out.member("cat", is_exchange(*event.op) ? "exchange" : "op").member("tid", tid);
      add_event_times(out, *event.op, event.start_ns, event.end_ns);
      out.member("output_bytes", event.bytes).end_object().end_object();
    }
  }
  out.end_array().end_object();
  return out.take();
}

Timeline::Load Timeline::load(int device) const {
  using namespace timeline;
  Load load;
  for (const Event& event : lanes_[static_cast<size_t>(device)]->events()) {
    if (event.depth > 0) continue;
    const double ms = static_cast<double>(event.end_ns - event.start_ns) / 1e6;
    load.total_ms += ms;
    if (is_exchange(*event.op)) load.exchange_ms += ms;
  }
  return load;
}

}  // namespace millrace::executor
