#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "framework/read_program.h"
#include "ps/protocol/answers.h"
#include "ps/protocol/messages.h"
#include "ps/protocol/pack.h"
#include "ps/server/load_slices.h"
#include "ps/server/service.h"
#include "ps/values.h"

/// A server that tests call without a client, so that they choose the sequence number and the step
/// of each call.
namespace millrace::ps::test {

/// Puts an answer into a Reply. `on_put` runs before each value.
class ReplyInto final : public ReplySink {
 public:
  explicit ReplyInto(Reply& reply, std::function<void()> on_put = {})
      : reply_(reply), on_put_(std::move(on_put)) {}
  Status put(std::string_view name, const Value& value) override {
    if (on_put_) on_put_();
    reply_.names.emplace_back(name);
    return copy_value_into(value, reply_.values.emplace_back());
  }
  StatusOr<std::byte*> put_room(std::string_view name, DType dtype,
                                llvm::ArrayRef<int64_t> dims) override {
    reply_.names.emplace_back(name);
    auto& tensor = reply_.values.emplace_back().as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(tensor.resize(dtype, dims));
    return tensor.raw();
  }
  void set_epoch(uint64_t epoch) override { reply_.epoch = epoch; }
  void set_number(int64_t number) override { reply_.number = number; }
  void set_text(std::string text) override { reply_.text = std::move(text); }

 private:
  Reply& reply_;
  std::function<void()> on_put_;
};

template <typename T>
void put_numbers(Scope& scope, const std::string& name, DType dtype, const std::vector<T>& numbers,
                 Dims dims = {}) {
  if (dims.empty()) dims = {static_cast<int64_t>(numbers.size())};
  auto& tensor = scope.root().local(name).as<Tensor>();
  ASSERT_TRUE(tensor.resize(dtype, dims).ok());
  std::copy(numbers.begin(), numbers.end(), tensor.data<T>());
}

/// The server of a program in text form. It takes calls from the start; serve() lets it apply
/// steps.
class DirectServer {
 public:
  explicit DirectServer(const std::string& text, ServerOptions options = {},
                        const std::function<void(Scope&)>& fill = {}) {
    auto program = read_program_bytes(text, "server", {});
    status_ = program.status();
    if (!status_.ok()) return;
    program_ = *std::move(program);
    if (fill) fill(scope_);
    options.report_interval = std::chrono::milliseconds(0);
    const StatusOr<const Op*> op = find_serve_op(*program_);
    status_ = op.status();
    if (!status_.ok()) return;
    auto service = Service::create(*runtime_, **op, scope_, std::move(options));
    status_ = service.status();
    if (status_.ok()) service_ = *std::move(service);
  }
  ~DirectServer() { (void)end(true); }

  /// The outcome of creating the server, and of serving once that has ended.
  [[nodiscard]] const Status& status() const { return status_; }
  Service& service() { return *service_; }
  void serve() {
    ASSERT_TRUE(status_.ok()) << status_.to_string();
    thread_ = std::thread([this] { status_ = service_->serve(); });
  }
  Status end(bool stop = false) {
    if (stop && service_ != nullptr) service_->stop();
    if (thread_.joinable()) thread_.join();
    return status_;
  }

 private:
  std::shared_ptr<executor::Runtime> runtime_ = executor::make_runtime();
  std::unique_ptr<Program> program_;
  Scope scope_;
  Status status_;
  std::unique_ptr<Service> service_;
  std::thread thread_;
};

/// A trainer that calls such a server.
class DirectTrainer {
 public:
  DirectTrainer(DirectServer& server, int id, uint64_t incarnation)
      : server_(server), caller_{"", id, incarnation} {}

  int64_t step = -1;             ///< that the next call names
  uint64_t epoch = 0;            ///< of the server that calls are meant for; 0: any
  uint64_t sequence = 0;         ///< of the last call that needs one
  std::function<void()> on_put;  ///< runs before each value of an answer
  std::chrono::milliseconds patience{20'000};

  template <typename Message>
  Status call(Message message, Reply& reply) {
    Request request = protocol::pack(std::move(message));
    request.caller = caller_;
    request.step = step;
    request.epoch = epoch;
    if (protocol::needs_sequence(request)) request.sequence = ++sequence;
    ReplyInto sink(reply, on_put);
    return server_.service().handle(request, Clock::now() + patience, sink);
  }
  template <typename Message>
  Status call(Message message) {
    Reply reply;
    return call(std::move(message), reply);
  }
  /// The first values of an answer to a message that gets vars.
  template <typename Message>
  std::vector<float> floats_of(Message message) {
    Reply reply;
    const Status status = call(std::move(message), reply);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const Tensor* const tensor =
        reply.values.empty() ? nullptr : reply.values.front().get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized()) return {};
    return {tensor->values<float>().begin(), tensor->values<float>().end()};
  }
  protocol::HelloAnswer hello() {
    Reply reply;
    const Status status = call(protocol::Hello{}, reply);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const auto answer = protocol::hello_answer(reply);
    EXPECT_TRUE(answer.ok());
    return answer.ok() ? *answer : protocol::HelloAnswer();
  }
  /// Fetches `w` at the end of a step, or before the first one.
  Status fetch(std::vector<float>* w = nullptr) {
    Reply reply;
    MILLRACE_RETURN_IF_ERROR(
        call(protocol::FetchBarrier{.names = {"w"}, .sent_everywhere = true}, reply));
    if (w == nullptr) return Ok();
    const auto values = reply.values.at(0).get_if<Tensor>()->values<float>();
    w->assign(values.begin(), values.end());
    return Ok();
  }
  /// Sends the last gradient of a step.
  Status send(const std::string& grad, const Value& value) {
    return call(protocol::SendBarrier{.vars = {{grad, &value, nullptr}}});
  }
  /// Asks for the last step of a lost trainer.
  protocol::LossAnswer report_loss(int trainer, uint64_t incarnation) {
    Reply reply;
    const Status status =
        call(protocol::Loss{.trainer = trainer, .incarnation = incarnation}, reply);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const auto answer = protocol::loss_answer(reply);
    EXPECT_TRUE(answer.ok());
    return answer.ok() ? *answer : protocol::LossAnswer();
  }

 private:
  DirectServer& server_;
  Caller caller_;
};

}  // namespace millrace::ps::test
