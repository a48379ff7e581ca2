// One of several processes that train a network together: gradients are summed by collective ops.
//   millrace launch --nproc_per_node 2 -- ranks
//   mpirun -n 2 ranks

#include <iostream>
#include <string>
#include <vector>

#include <millrace/api/executor.h>
#include <millrace/frontend/layers.h>
#include <millrace/transpiler/distribute_transpiler.h>

namespace api = millrace::api;
namespace layers = millrace::layers;
using millrace::Array, millrace::Arrays, millrace::Status;

// Rows of y = 2 a - b; ranks have different ones.
static Arrays batch(int rank, int step) {
  std::vector<float> x;
  std::vector<float> y;
  for (int row = 0; row < 16; ++row) {
    const float a = static_cast<float>((row * 7 + step + rank * 3) % 13) / 13;
    const float b = static_cast<float>((row * 3 + step) % 5) / 5;
    x.insert(x.end(), {a, b});
    y.push_back(2 * a - b);
  }
  return {{"x", Array::of<float>({16, 2}, x)}, {"y", Array::of<float>({16, 1}, y)}};
}

static Status run() {
  millrace::Network net(/*random_seed=*/1);
  const auto guess = layers::fc(net.data("x", {-1, 2}), 1);
  const auto loss =
      layers::mean(layers::square(layers::elementwise_sub(guess, net.data("y", {-1, 1}))));
  MILLRACE_RETURN_IF_ERROR(net.minimize(loss, {.learning_rate = 0.3}).status());

  MILLRACE_ASSIGN_OR_RETURN(const api::Ranks ranks, api::Ranks::open());
  // the programs name ranks by endpoints, which need not be those where they meet
  millrace::transpiler::DistributeTranspilerConfig config;
  config.mode = "collective";
  config.collective_mode = "grad_allreduce";
  millrace::transpiler::TranspileArguments arguments;
  arguments.trainer_id = ranks.rank();
  for (int i = 0; i < ranks.size(); ++i)
    arguments.trainers = (i == 0 ? "" : arguments.trainers + ",") + "rank:" + std::to_string(i + 1);
  arguments.current_endpoint = "rank:" + std::to_string(ranks.rank() + 1);
  millrace::transpiler::DistributeTranspiler transpiler(config);
  MILLRACE_RETURN_IF_ERROR(transpiler.transpile(net.main(), net.startup(), arguments));
  MILLRACE_ASSIGN_OR_RETURN(const auto main, transpiler.get_trainer_program());
  MILLRACE_ASSIGN_OR_RETURN(const auto startup, transpiler.get_trainer_startup_program());

  MILLRACE_ASSIGN_OR_RETURN(api::Executor executor, api::Executor::create({.ranks = ranks}));
  const api::Scope scope;
  MILLRACE_RETURN_IF_ERROR(executor.run(*startup, scope).status());
  MILLRACE_ASSIGN_OR_RETURN(api::PreparedProgram training, executor.prepare(*main, scope));
  float last = 0;
  for (int step = 0; step < 200; ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const Arrays got,
                              training.run(batch(ranks.rank(), step), {loss.name()}));
    last = got.at(loss.name()).values<float>()[0];
  }
  std::cout << "rank " << ranks.rank() << " of " << ranks.size() << ": loss " << last << "\n";
  if (last > 0.01F) return {millrace::StatusCode::kExecution, "the loss is above 0.01"};
  return ranks.barrier();
}

int main() {
  const Status status = run();
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
