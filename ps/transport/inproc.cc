#include "ps/transport/inproc.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "framework/base/errors.h"
#include "ps/values.h"

namespace millrace::ps {
namespace {

// Writes the values of a reply directly into the caller's Reply.
class DirectSink final : public ReplySink {
 public:
  explicit DirectSink(Reply& reply) : reply_(reply) {
    reply_.number = 0;
    reply_.text.clear();
    reply_.names.clear();
  }
  Status put(std::string_view name, const Value& value) override {
    const size_t index = reply_.names.size();
    if (index == reply_.values.size()) reply_.values.emplace_back();
    MILLRACE_RETURN_IF_ERROR(copy_value_into(value, reply_.values[index]));
    reply_.names.emplace_back(name);
    return Ok();
  }
  StatusOr<std::byte*> put_room(std::string_view name, DType dtype,
                                llvm::ArrayRef<int64_t> dims) override {
    const size_t index = reply_.names.size();
    if (index == reply_.values.size()) reply_.values.emplace_back();
    auto& tensor = reply_.values[index].as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(tensor.resize(dtype, dims));
    tensor.set_lod({});
    reply_.names.emplace_back(name);
    return tensor.raw();
  }
  void set_epoch(uint64_t epoch) override { reply_.epoch = epoch; }
  void set_number(int64_t number) override { reply_.number = number; }
  void set_text(std::string text) override { reply_.text = std::move(text); }

 private:
  Reply& reply_;
};

}  // namespace

// The listener of each endpoint, and the number of calls in its handler.
class InprocTransport::Hub {
 public:
  Status open(const std::string& endpoint, Handler& handler) {
    const std::lock_guard lock(mutex_);
    if (!places_.try_emplace(endpoint, Place{&handler, 0}).second) {
      return {StatusCode::kDistributed,
              fmt::format("another server already listens at '{}'", endpoint)};
    }
    changed_.notify_all();
    return Ok();
  }

  void close(const std::string& endpoint) {
    std::unique_lock lock(mutex_);
    const auto place = places_.find(endpoint);
    place->second.handler = nullptr;
    changed_.wait(lock, [&] { return place->second.calls == 0; });
    places_.erase(place);
  }

  /// Null if there is no listener by the deadline.
  Handler* enter(const std::string& endpoint, Deadline deadline) {
    std::unique_lock lock(mutex_);
    Handler* handler = nullptr;
    changed_.wait_until(lock, deadline, [&] {
      if (closed_) return true;
      const auto place = places_.find(endpoint);
      if (place == places_.end() || place->second.handler == nullptr) return false;
      handler = place->second.handler;
      ++place->second.calls;
      return true;
    });
    return handler;
  }

  void close_all() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  bool closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  void leave(const std::string& endpoint) {
    const std::lock_guard lock(mutex_);
    --places_.find(endpoint)->second.calls;
    changed_.notify_all();
  }

 private:
  struct Place {
    Handler* handler;  // null while it closes
    int calls;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Place> places_;
  bool closed_ = false;
};

class InprocTransport::InprocChannel final : public Channel {
 public:
  InprocChannel(std::shared_ptr<Hub> hub, std::string endpoint)
      : hub_(std::move(hub)), endpoint_(std::move(endpoint)) {}

  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }

  Status call(const Request& request, Deadline deadline, Reply& reply) override {
    Handler* const handler = hub_->enter(endpoint_, deadline);
    if (handler == nullptr && hub_->closed())
      return {StatusCode::kDistributed, fmt::format("the servers of this process have ended; '{}' "
                                                    "to '{}' cannot be answered",
                                                    method_name(request.method), endpoint_)};
    if (handler == nullptr) {
      return {StatusCode::kDistributed,
              fmt::format("no server listened at '{}' before the deadline of '{}'", endpoint_,
                          method_name(request.method))};
    }
    DirectSink sink(reply);
    Status status = handler->handle(request, deadline, sink);
    hub_->leave(endpoint_);
    if (status.ok()) reply.values.resize(reply.names.size());
    return std::move(status).with_note(fmt::format("from the server at {}", endpoint_));
  }
  [[nodiscard]] bool closed() const override { return hub_->closed(); }

 private:
  std::shared_ptr<Hub> hub_;
  std::string endpoint_;
};

class InprocTransport::InprocListener final : public Listener {
 public:
  InprocListener(std::shared_ptr<Hub> hub, std::string endpoint)
      : hub_(std::move(hub)), endpoint_(std::move(endpoint)) {}
  ~InprocListener() override { hub_->close(endpoint_); }

  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }

 private:
  std::shared_ptr<Hub> hub_;
  std::string endpoint_;
};

InprocTransport::InprocTransport() : hub_(std::make_shared<Hub>()) {}
InprocTransport::~InprocTransport() = default;

void InprocTransport::close() {
  hub_->close_all();
}

StatusOr<std::shared_ptr<Channel>> InprocTransport::connect(const std::string& endpoint) {
  if (endpoint.empty()) return InvalidArgument("the endpoint of a server is empty");
  return std::shared_ptr<Channel>(std::make_shared<InprocChannel>(hub_, endpoint));
}

StatusOr<std::unique_ptr<Listener>> InprocTransport::listen(const std::string& endpoint,
                                                            Handler& handler) {
  if (endpoint.empty()) return InvalidArgument("the endpoint of a server is empty");
  MILLRACE_RETURN_IF_ERROR(hub_->open(endpoint, handler));
  return std::unique_ptr<Listener>(std::make_unique<InprocListener>(hub_, endpoint));
}

}  // namespace millrace::ps
