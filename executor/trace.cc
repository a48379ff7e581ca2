#include "executor/trace.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "framework/base/json_writer.h"
#include "framework/program.h"

namespace millrace::executor {

void begin_op_event(JsonWriter& out, const Op& op) {
  out.begin_object();
  out.member("name", std::string_view(op.type())).member("ph", "X").member("pid", 1);
}

void add_event_times(JsonWriter& out, const Op& op, int64_t start_ns, int64_t end_ns) {
  const Location place = op.location();
  out.member("ts", static_cast<double>(start_ns) / 1e3);
  out.member("dur", static_cast<double>(end_ns - start_ns) / 1e3);
  out.key("args").begin_object();
  out.member("block", place.block).member("op", place.op);
}

void Trace::before(const CompiledOp& /*compiled*/) {
  open_.push_back(Clock::now());
  if (first_ == Clock::time_point{}) first_ = open_.back();
}

Status Trace::after(const CompiledOp& compiled, Value* const* table) {
  const auto end = Clock::now();
  const auto ns = [this](Clock::time_point t) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(t - first_).count();
  };
  Event event{compiled.op, ns(open_.back()), ns(end), {}, 0};
  open_.pop_back();
  for (const int32_t index : compiled.outputs) {
    if (index < 0) continue;
    event.outputs += (event.outputs.empty() ? "" : ", ") + describe(*table[index]);
    if (const auto* const tensor = table[index]->get_if<Tensor>()) event.bytes += tensor->bytes();
  }
  events_.push_back(std::move(event));
  return Ok();
}

std::string Trace::chrome_json() const {
  JsonWriter out;
  out.begin_object();
  out.key("traceEvents").begin_array();
  for (const Event& event : events_) {
    begin_op_event(out, *event.op);
    out.member("tid", 1);
    add_event_times(out, *event.op, event.start_ns, event.end_ns);
    out.member("outputs", event.outputs).member("output_bytes", event.bytes);
    out.end_object().end_object();
  }
  out.end_array().end_object();
  return out.take();
}

std::string Trace::op_table() const {
  struct Row {
    int64_t calls = 0;
    int64_t ns = 0;
  };
  std::map<std::string, Row> rows;
  int64_t total = 0;
  for (const Event& event : events_) {
    Row& row = rows[event.op->type().str()];
    ++row.calls;
    row.ns += event.end_ns - event.start_ns;
    total += event.end_ns - event.start_ns;
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  std::string text = fmt::format("{:<40} {:>8} {:>12} {:>7} {:>12}\n", "op", "calls", "total ms",
                                 "share", "mean us");
  for (const auto& [type, row] : sorted) {
    text += fmt::format(
        "{:<40} {:>8} {:>12.3f} {:>6.1f}% {:>12.2f}\n", type, row.calls,
        static_cast<double>(row.ns) / 1e6,
        total == 0 ? 0.0 : 100.0 * static_cast<double>(row.ns) / static_cast<double>(total),
        static_cast<double>(row.ns) / 1e3 / static_cast<double>(row.calls));
  }
  return text;
}

}  // namespace millrace::executor
