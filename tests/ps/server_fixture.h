#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/read_program.h"
#include "ps/client/client.h"
#include "ps/client/trainer_link.h"
#include "ps/ops/serve_ops.h"
#include "ps/transport/inproc.h"

/// Servers, each in a thread, for tests that call them.
namespace millrace::ps {

/// A server that runs a program in text form until it is stopped or all trainers have left.
class TestServer {
 public:
  TestServer(std::shared_ptr<Transport> transport, const std::string& text,
             std::map<std::string, std::vector<float>> values, ServerOptions options = {}) {
    auto program = read_program_bytes(text, "server", {});
    if (!program.ok()) {
      result_ = program.status();
      return;
    }
    program_ = *std::move(program);
    for (const auto& [name, numbers] : values) {
      const Var* const var = program_->root().find_var(name);
      auto& tensor = scope_.local(name).as<Tensor>();
      result_ = tensor.resize(DType::kFloat32, var->dims());
      std::copy(numbers.begin(), numbers.end(), tensor.data<float>());
    }
    if (options.report_interval == ServerOptions().report_interval)
      options.report_interval = std::chrono::milliseconds(0);
    role_ = std::make_shared<ServerRole>(std::move(transport), std::move(options), "");
    const auto runtime = executor::make_runtime();
    add_server_controls(runtime->controls, role_);
    auto prepared = executor::Executor(runtime, {.optimize = false}).prepare(*program_, scope_);
    if (!prepared.ok()) {
      result_ = prepared.status();
      return;
    }
    prepared_ = *std::move(prepared);
    thread_ = std::thread([this] {
      std::vector<Value> none;
      result_ = prepared_->run({}, {}, none);
    });
  }
  ~TestServer() { (void)end(true); }

  /// Waits until the server has ended. \returns the status of serving
  Status end(bool stop = false) {
    if (stop && role_ != nullptr) role_->stop();
    if (thread_.joinable()) thread_.join();
    return result_;
  }

 private:
  std::shared_ptr<ServerRole> role_;
  std::unique_ptr<Program> program_;
  Scope scope_;
  std::unique_ptr<executor::PreparedProgram> prepared_;
  std::thread thread_;
  Status result_;
};

/// A synchronous server of one parameter `w` of two elements, sgd with rate 0.5, for the given
/// number of trainers.
inline std::string sync_server(int trainers) {
  std::string vars;
  std::string slots;
  for (int t = 0; t < trainers; ++t) {
    vars += fmt::format("  var w@GRAD.trainer_{}: f32(2)\n", t);
    slots += fmt::format("{}w@GRAD.trainer_{}", t == 0 ? "" : ", ", t);
  }
  return fmt::format(R"(# millrace program 1

block 0 {{
  persist w: f32(2)
  persist w@GRAD: f32(2)
  persist rate: f32(1)
{}
  listen_and_serv X={} {{
      optimize_blocks: [^1], endpoint: "server", pserver_id: 0, Fanin: {}, distributed_mode: 0,
      grad_to_block_id: ["w@GRAD:1"], sparse_grad_to_param: strings[]
  }}
}}

block 1 parent=0 {{
  sum X={} -> Out=w@GRAD {{op_role: 0}}
  scale X=w@GRAD -> Out=w@GRAD {{scale: {}, op_role: 0}}
  sgd Param=w Grad=w@GRAD LearningRate=rate -> ParamOut=w {{op_role: 2}}
}}
)",
                     vars, slots, trainers, slots, 1.0F / static_cast<float>(trainers));
}

/// The same without barriers; with delay compensation if requested.
inline std::string async_server(int trainers) {
  return fmt::format(R"(# millrace program 1

block 0 {{
  persist w: f32(2)
  persist w@GRAD: f32(2)
  persist rate: f32(1)

  listen_and_serv X=w@GRAD {{
      optimize_blocks: [^1], endpoint: "server", pserver_id: 0, Fanin: {}, distributed_mode: 1,
      grad_to_block_id: ["w@GRAD:1"], sparse_grad_to_param: strings[]
  }}
}}

block 1 parent=0 {{
  sgd Param=w Grad=w@GRAD LearningRate=rate -> ParamOut=w {{op_role: 2}}
}}
)",
                     trainers);
}

inline Value floats(const std::vector<float>& numbers) {
  Value value;
  auto& tensor = value.as<Tensor>();
  if (!tensor.resize(DType::kFloat32, {static_cast<int64_t>(numbers.size())}).ok()) return value;
  std::copy(numbers.begin(), numbers.end(), tensor.data<float>());
  return value;
}

inline std::vector<float> numbers_in(const Value& value) {
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized()) return {};
  return {tensor->values<float>().begin(), tensor->values<float>().end()};
}

/// One trainer that makes individual calls.
class TestTrainer {
 public:
  TestTrainer(std::shared_ptr<Transport> transport, int id, int deadline_ms = 20'000,
              std::string job = "", uint64_t incarnation = 0, int heartbeat_ms = 0)
      : client_(std::make_shared<Client>(
            std::move(transport),
            ClientOptions{.job = std::move(job),
                          .trainer = id,
                          .incarnation = incarnation,
                          .deadline = std::chrono::milliseconds(deadline_ms),
                          .heartbeat = std::chrono::milliseconds(heartbeat_ms)})) {}

  Client& client() { return *client_; }

  Status call(Method method, const std::string& name = "", const Value* value = nullptr,
              std::vector<float>* result = nullptr, const std::string& text = "") {
    Client::Call call;
    call.endpoint = "server";
    call.request.method = method;
    call.request.text = text;
    if (!name.empty()) call.request.items.push_back({name, value, nullptr});
    Status status = client_->call(call);
    if (status.ok() && result != nullptr && !call.reply.values.empty())
      *result = numbers_in(call.reply.values.front());
    return status;
  }
  /// A whole step of a synchronous trainer; the first one starts with a fetch.
  Status step(const std::string& grad, const std::vector<float>& numbers,
              std::vector<float>& param) {
    if (!started_) MILLRACE_RETURN_IF_ERROR(call(Method::kFetchBarrier, "w", nullptr, &param));
    started_ = true;
    const Value value = floats(numbers);
    MILLRACE_RETURN_IF_ERROR(call(Method::kSendBarrier, grad, &value));
    return call(Method::kFetchBarrier, "w", nullptr, &param);
  }
  /// The next step starts with a fetch.
  void begin_anew() { started_ = false; }
  Status leave() { return client_->complete(false); }

 private:
  std::shared_ptr<Client> client_;
  bool started_ = false;
};

}  // namespace millrace::ps
