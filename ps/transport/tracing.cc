#include "ps/transport/tracing.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "framework/base/json_writer.h"

namespace millrace::ps {
namespace {

using WallClock = CallTrace::Clock;

double microseconds(WallClock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// FNV-1a hash of the fields that identify a call within a job. Every server has another epoch.
uint64_t flow_of(const Request& request) {
  if (request.sequence == 0 || request.method == Method::kHello) return 0;
  uint64_t hash = 0xcbf29ce484222325U;
  const auto mix = [&](uint64_t word) {
    for (int i = 0; i < 8; ++i, word >>= 8U) hash = (hash ^ (word & 0xffU)) * 0x100000001b3U;
  };
  mix(static_cast<uint64_t>(request.caller.trainer));
  mix(request.caller.incarnation);
  mix(request.epoch);
  mix(request.sequence);
  // trace viewers store numbers as doubles
  return (hash >> 12U) | 1U;
}

class TracedChannel final : public Channel {
 public:
  TracedChannel(std::shared_ptr<Channel> channel, CallTrace& trace)
      : channel_(std::move(channel)), trace_(trace) {}
  [[nodiscard]] const std::string& endpoint() const override { return channel_->endpoint(); }
  Status call(const Request& request, Deadline deadline, Reply& reply) override {
    Request marked = request;
    if (marked.sequence == 0 && marked.method != Method::kHello)
      marked.sequence = trace_.next_read();
    const auto begin = WallClock::now();
    Status status = channel_->call(marked, deadline, reply);
    trace_.add(marked, endpoint(), /*served=*/false, begin, WallClock::now(), status.ok());
    return status;
  }
  [[nodiscard]] bool closed() const override { return channel_->closed(); }
  void interrupt() override { channel_->interrupt(); }

 private:
  std::shared_ptr<Channel> channel_;
  CallTrace& trace_;
};

class TracedHandler final : public Handler {
 public:
  TracedHandler(Handler& handler, CallTrace& trace, std::string endpoint)
      : handler_(handler), trace_(trace), endpoint_(std::move(endpoint)) {}
  Status handle(const Request& request, Deadline deadline, ReplySink& reply) override {
    const auto begin = WallClock::now();
    Status status = handler_.handle(request, deadline, reply);
    trace_.add(request, endpoint_, /*served=*/true, begin, WallClock::now(), status.ok());
    return status;
  }
  [[nodiscard]] StatusOr<bool> knows(const Request& envelope) const override {
    return handler_.knows(envelope);
  }
  void heard(const Request& envelope) override { handler_.heard(envelope); }
  [[nodiscard]] uint64_t term() const override { return handler_.term(); }
  Status begin_term(uint64_t term) override { return handler_.begin_term(term); }
  [[nodiscard]] bool has_finished() const override { return handler_.has_finished(); }
  void end(Status why) override { handler_.end(std::move(why)); }

 private:
  Handler& handler_;
  CallTrace& trace_;
  std::string endpoint_;
};

class TracedListener final : public Listener {
 public:
  TracedListener(std::unique_ptr<TracedHandler> handler) : handler_(std::move(handler)) {}
  [[nodiscard]] const std::string& endpoint() const override { return listener->endpoint(); }

  std::unique_ptr<TracedHandler> handler_;
  std::unique_ptr<Listener> listener;  ///< destroyed before the handler
};

class TracingTransport final : public Transport {
 public:
  TracingTransport(std::shared_ptr<Transport> transport, CallTrace& trace)
      : transport_(std::move(transport)), trace_(trace) {}
  StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) override {
    MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<Channel> channel, transport_->connect(endpoint));
    return std::shared_ptr<Channel>(std::make_shared<TracedChannel>(std::move(channel), trace_));
  }
  StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                             Handler& handler) override {
    auto made = std::make_unique<TracedListener>(
        std::make_unique<TracedHandler>(handler, trace_, endpoint));
    MILLRACE_ASSIGN_OR_RETURN(made->listener, transport_->listen(endpoint, *made->handler_));
    return std::unique_ptr<Listener>(std::move(made));
  }

 private:
  std::shared_ptr<Transport> transport_;
  CallTrace& trace_;
};

}  // namespace

void CallTrace::add(const Request& request, const std::string& server, bool served,
                    WallClock::time_point begin, WallClock::time_point end, bool ok) {
  std::string items;
  if (!request.items.empty()) items = request.items.front().name;
  if (request.items.size() > 1) items += fmt::format(" and {} more", request.items.size() - 1);
  const std::lock_guard lock(mutex_);
  events_.push_back({std::string(method_name(request.method)), server, std::move(items),
                     request.caller.trainer, request.step, flow_of(request), is_numbered(request),
                     number_of_thread(), served, ok, begin, end});
}

void CallTrace::add_op(std::string_view type, WallClock::time_point begin,
                       WallClock::time_point end) {
  const std::lock_guard lock(mutex_);
  events_.push_back(
      {std::string(type), "", "", 0, 0, 0, false, number_of_thread(), false, true, begin, end});
}

int CallTrace::number_of_thread() {
  return threads_.emplace(std::this_thread::get_id(), static_cast<int>(threads_.size()) + 1)
      .first->second;
}

std::string CallTrace::chrome_json(const std::string& role) const {
  const std::lock_guard lock(mutex_);
  WallClock::time_point origin = WallClock::now();
  for (const Event& event : events_) origin = std::min(origin, event.begin);
  JsonWriter out;
  out.begin_object();
  out.member("role", role).member("origin_us", microseconds(origin.time_since_epoch()));
  out.key("traceEvents").begin_array();
  const auto common = [&](const Event& event, const char* phase, WallClock::time_point time) {
    out.begin_object();
    out.member("name", event.name).member("ph", phase).member("pid", 1);
    out.member("tid", event.thread).member("ts", microseconds(time - origin));
  };
  for (const Event& event : events_) {
    common(event, "X", event.begin);
    out.member("cat", event.server.empty() ? "op" : event.served ? "served" : "call");
    out.member("dur", microseconds(event.end - event.begin));
    if (event.server.empty()) {
      out.end_object();
      continue;
    }
    out.key("args").begin_object();
    out.member("server", event.server).member("trainer", event.trainer);
    out.member("step", event.step).member("vars", event.items).member("ok", event.ok).end_object();
    out.end_object();
    if (event.flow == 0) continue;
    // an arrow from where the call was made to where it was served
    common(event, event.served ? "f" : "s", event.begin);
    out.member("cat", event.numbered ? "call" : "read")
        .member("id", static_cast<int64_t>(event.flow));
    if (event.served) out.member("bp", "e");
    out.end_object();
  }
  out.end_array().end_object();
  return out.take();
}

std::shared_ptr<Transport> make_tracing_transport(std::shared_ptr<Transport> transport,
                                                  CallTrace& trace) {
  return std::make_shared<TracingTransport>(std::move(transport), trace);
}

}  // namespace millrace::ps
