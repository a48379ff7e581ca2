#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "ps/transport/transport.h"

namespace millrace::ps {

/// Carries calls out. Runs a callback after one of them, and may lose its response.
class LosingTransport final : public Transport {
 public:
  explicit LosingTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}
  void lose(Method method, std::function<void()> then) {
    method_ = method;
    then_ = std::move(then);
  }
  /// Runs a callback after the next response to such a call, which is not lost.
  void after(Method method, std::function<void()> then) {
    lose(method, std::move(then));
    loses_ = false;
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
  class LosingChannel final : public Channel {
   public:
    LosingChannel(LosingTransport& owner, std::shared_ptr<Channel> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    const std::string& endpoint() const override { return inner_->endpoint(); }
    Status call(const Request& request, Deadline deadline, Reply& reply) override {
      Status status = inner_->call(request, deadline, reply);
      if (!owner_.then_ || request.method != owner_.method_) return status;
      std::exchange(owner_.then_, nullptr)();
      if (!owner_.loses_) return status;
      return {StatusCode::kDistributed, "the answer is lost"};
    }

   private:
    LosingTransport& owner_;
    std::shared_ptr<Channel> inner_;
  };

  std::shared_ptr<Transport> inner_;
  Method method_ = Method::kHello;
  std::function<void()> then_;
  bool loses_ = true;
};

}  // namespace millrace::ps
