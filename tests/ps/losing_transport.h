#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "ps/transport/transport.h"

namespace millrace::ps {

/// Carries calls out. Runs a callback after one of them, and may lose its response. Calls come from
/// several threads: clients send heartbeats by themselves.
class LosingTransport final : public Transport {
 public:
  explicit LosingTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}
  /// Runs a callback after the next response to such a call, which is lost.
  void lose(Method method, std::function<void()> then) {
    plan(Plan{method, std::move(then), true});
  }
  /// The same with a response that is not lost.
  void after(Method method, std::function<void()> then) {
    plan(Plan{method, std::move(then), false});
  }
  StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) override {
    StatusOr<std::shared_ptr<Channel>> inner = inner_->connect(endpoint);
    if (!inner.ok()) return std::move(inner).status();
    return std::shared_ptr<Channel>(std::make_shared<LosingChannel>(*this, *std::move(inner)));
  }
  StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                             Handler& handler) override {
    return inner_->listen(endpoint, handler);
  }

 private:
  struct Plan {
    Method method;
    std::function<void()> then;
    bool loses;
  };
  void plan(Plan plan) {
    const std::lock_guard lock(mutex_);
    plan_ = std::move(plan);
  }
  /// The plan, once, if it is for such a call.
  std::optional<Plan> take(Method method) {
    const std::lock_guard lock(mutex_);
    if (!plan_ || plan_->method != method) return std::nullopt;
    return std::exchange(plan_, std::nullopt);
  }

  class LosingChannel final : public Channel {
   public:
    LosingChannel(LosingTransport& owner, std::shared_ptr<Channel> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    const std::string& endpoint() const override { return inner_->endpoint(); }
    Status call(const Request& request, Deadline deadline, Reply& reply) override {
      Status status = inner_->call(request, deadline, reply);
      const std::optional<Plan> plan = owner_.take(request.method);
      if (!plan) return status;
      plan->then();
      if (!plan->loses) return status;
      return {StatusCode::kDistributed, "the answer is lost"};
    }

   private:
    LosingTransport& owner_;
    std::shared_ptr<Channel> inner_;
  };

  std::shared_ptr<Transport> inner_;
  std::mutex mutex_;
  std::optional<Plan> plan_;
};

}  // namespace millrace::ps
