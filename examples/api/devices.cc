// Trains a network on two devices of one process, with options of the two strategies.
//   devices

#include <iostream>
#include <vector>

#include <millrace/api/executor.h>
#include <millrace/api/parallel_executor.h>
#include <millrace/frontend/layers.h>

namespace {

namespace api = millrace::api;
namespace layers = millrace::layers;
using millrace::Array;
using millrace::Arrays;

Arrays batch(int step) {
  std::vector<float> x;
  std::vector<float> y;
  for (int row = 0; row < 32; ++row) {
    const float a = static_cast<float>((row * 7 + step) % 13) / 13;
    const float b = static_cast<float>((row * 3 + step) % 5) / 5;
    x.insert(x.end(), {a, b});
    y.push_back(2 * a - b);
  }
  Arrays feeds;
  feeds["x"] = Array::of<float>({32, 2}, x);
  feeds["y"] = Array::of<float>({32, 1}, y);
  return feeds;
}

millrace::Status run() {
  millrace::Network net(/*random_seed=*/1);
  const auto x = net.data("x", {-1, 2});
  const auto y = net.data("y", {-1, 1});
  const auto guess = layers::fc(layers::fc(x, 8, {.act = "tanh"}), 1);
  const auto loss = layers::mean(layers::square(layers::elementwise_sub(guess, y)));
  MILLRACE_RETURN_IF_ERROR(net.minimize(loss, {.learning_rate = 0.1}).status());

  MILLRACE_ASSIGN_OR_RETURN(api::Executor executor, api::Executor::create());
  const api::Scope scope;
  MILLRACE_RETURN_IF_ERROR(executor.run(net.startup(), scope).status());
  api::ParallelOptions options;
  options.devices = 2;
  options.threads = 2;
  options.loss_name = loss.name();
  options.build_strategy.reduce_strategy = api::ReduceStrategy::kReduce;
  options.build_strategy.fuse_all_optimizer_ops = true;
  options.exec_strategy.num_iteration_per_drop_scope = 10;
  MILLRACE_ASSIGN_OR_RETURN(api::ParallelExecutor devices,
                            api::ParallelExecutor::create(net.main(), scope, options));
  for (const std::string& remark : devices.remarks()) std::cout << "remark: " << remark << "\n";
  for (int step = 0; step < 40; ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const Arrays results, devices.run(batch(step), {loss.name()}));
    if (step % 13 != 0) continue;
    std::cout << "step " << step << ": loss";
    for (const float value : results.at(loss.name()).values<float>()) std::cout << " " << value;
    std::cout << "\n";
  }
  return millrace::Ok();
}

}  // namespace

int main() {
  const millrace::Status status = run();
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
