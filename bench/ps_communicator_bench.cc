// Cost of the Communicator for an asynchronous trainer.
//
//   ps_communicator_bench [--megabytes M] [--vars V] [--step-ms T] [--runs R] [--check]
//
// A step works on its gradients for a while (T ms of sums over them), as a trainer computes. It is
// timed without a Communicator, and with one that sends all gradients and receives parameters; its
// servers are dense tables in this process. Prints one line of JSON.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "ps/communicator/communicator.h"
#include "ps/table/dense_table.h"

namespace {

using namespace millrace::ps;
using millrace::Scope;
using millrace::Status;
using millrace::Tensor;
using millrace::Value;
using Clock = std::chrono::steady_clock;

struct Setup {
  double megabytes = 2;
  int vars = 8;
  double step_ms = 5;
  int runs = 200;
  bool check = false;
};

void must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.to_string());
  std::exit(1);
}

// A dense table per var.
class Tables final : public Sender {
 public:
  Tables(const std::vector<std::string>& vars, int64_t elements) {
    for (const std::string& var : vars) {
      DenseTableOptions options;
      options.elements = elements;
      options.rule = DenseTableOptions::Rule::kSum;
      tables_[var] = std::move(*DenseTable::create(options));
    }
  }
  Status send(const CommContext& context, std::span<Value> values, Deadline) override {
    return tables_.at(context.var_name)->push(values[0].get_if<Tensor>()->values<float>());
  }
  Status receive(const CommContext& context, std::span<Value> values, Deadline) override {
    DenseTable& table = *tables_.at(context.var_name);
    auto& to = values[0].as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(to.resize(millrace::DType::kFloat32, {table.size()}));
    return table.pull(to.values<float>());
  }
  Status receive_changed(const CommContext&, millrace::SelectedRows&, Deadline) override {
    return {millrace::StatusCode::kUnimplemented, "rows"};
  }
  Status set(const CommContext&, std::span<const Value* const>, Deadline) override { return {}; }
  Status barrier(CommBarrier, Deadline) override { return {}; }

 private:
  std::map<std::string, std::unique_ptr<DenseTable>> tables_;
};

// Sums over the gradients; the number of rounds is fixed beforehand to take the wanted time.
float work(Scope& scope, const std::vector<std::string>& vars, int rounds) {
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const std::string& var : vars) {
      for (const float value : scope.find(var)->get_if<Tensor>()->values<float>()) sum += value;
    }
  }
  return sum;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void run(const Setup& setup) {
  std::vector<std::string> vars;
  for (int i = 0; i < setup.vars; ++i) vars.push_back(fmt::format("w{}", i));
  const auto elements = static_cast<int64_t>(setup.megabytes * 1e6 / 4 / setup.vars);
  Scope scope;
  CommContexts contexts;
  for (const std::string& var : vars) {
    auto& tensor = scope.local(var).as<Tensor>();
    must(tensor.resize(millrace::DType::kFloat32, {elements}));
    std::fill_n(tensor.data<float>(), elements, 1.0F);
    contexts[var].var_name = var;
  }
  auto made = Communicator::create(CommMode::kAsync, {}, std::make_shared<Tables>(vars, elements));
  must(made.status());
  Communicator& communicator = **made;
  must(communicator.init_with_ctx(contexts, contexts));
  must(communicator.start());
  float sum = work(scope, vars, 1);
  auto start = Clock::now();
  sum += work(scope, vars, 1);
  const int rounds =
      setup.check ? 1 : std::max(1, static_cast<int>(setup.step_ms / 1e3 / seconds_since(start)));
  std::vector<double> alone;
  std::vector<double> sending;
  std::vector<double> calls;
  Scope received;  // a separate scope, so that the gradients of the next step are not overwritten
  for (const std::string& var : vars)
    must(received.local(var).as<Tensor>().resize(millrace::DType::kFloat32, {elements}));
  for (int step = 0; step < setup.runs; ++step) {
    start = Clock::now();
    sum += work(scope, vars, rounds);
    alone.push_back(seconds_since(start));
    start = Clock::now();
    sum += work(scope, vars, rounds);
    const auto computed = Clock::now();
    for (const std::string& var : vars) must(communicator.send(var, *scope.find(var)));
    must(communicator.finish_step(received));
    sending.push_back(seconds_since(start));
    calls.push_back(seconds_since(computed));
  }
  must(communicator.stop());
  must(communicator.recv(received));
  for (const std::string& var : vars) {
    const float value = *received.find(var)->get_if<Tensor>()->data<float>();
    if (value == static_cast<float>(setup.runs)) continue;
    must({millrace::StatusCode::kInternal,
          fmt::format("'{}' is {} after {} gradients of 1", var, value, setup.runs)});
  }
  fmt::print(
      R"({{"bench": "ps_communicator", "megabytes": {}, "vars": {}, "unit": "ms/step", "alone": {:.3f}, )"
      R"("sending": {:.3f}, "ratio": {:.3f}, "calls": {:.3f}, "runs": {}, "sum": {}}})"
      "\n",
      setup.megabytes, setup.vars, median(alone) * 1e3, median(sending) * 1e3,
      median(sending) / median(alone), median(calls) * 1e3, setup.runs, sum > 0);
}

}  // namespace

int main(int argc, char** argv) {
  Setup setup;
  CLI::App app{"cost of the Communicator for an asynchronous trainer"};
  app.add_option("--megabytes", setup.megabytes, "MB of gradients per step")
      ->check(CLI::PositiveNumber);
  app.add_option("--vars", setup.vars, "number of gradient vars")->check(CLI::PositiveNumber);
  app.add_option("--step-ms", setup.step_ms, "computation time per step")
      ->check(CLI::PositiveNumber);
  app.add_option("--runs", setup.runs, "number of steps")->check(CLI::PositiveNumber);
  app.add_flag("--check", setup.check, "a few steps that only check the results");
  CLI11_PARSE(app, argc, argv);
  if (setup.check) setup.runs = 20;
  run(setup);
  return 0;
}
