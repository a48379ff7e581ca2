// A server or worker of a job of the first fleet, whose servers run the optimizer.
//   millrace launch --server_num 2 --trainer_num 2 -- first_fleet FOLDER sync|async|half_async|geo
//   mpirun -n 4 first_fleet FOLDER sync mpi
// FOLDER, which exists, receives the model of the first worker.

#include <iostream>
#include <string>
#include <vector>

#include <millrace/api/fleet.h>
#include <millrace/frontend/layers.h>

namespace {

namespace api = millrace::api;
namespace layers = millrace::layers;
using Strategy = api::TranspilerStrategy;
using millrace::Array, millrace::Arrays, millrace::Status;

// Rows of y = 2 a - b; workers have different ones.
Arrays batch(int worker, int step) {
  std::vector<float> x;
  std::vector<float> y;
  for (int row = 0; row < 16; ++row) {
    const float a = static_cast<float>((row * 7 + step + worker * 3) % 13) / 13;
    const float b = static_cast<float>((row * 3 + step) % 5) / 5;
    x.insert(x.end(), {a, b});
    y.push_back(2 * a - b);
  }
  return {{"x", Array::of<float>({16, 2}, x)}, {"y", Array::of<float>({16, 1}, y)}};
}

Status run(const std::string& folder, const std::string& mode, bool by_mpi) {
  millrace::Network net(/*random_seed=*/1);
  const auto x = net.data("x", {-1, 2});
  const auto y = net.data("y", {-1, 1});
  const auto guess = layers::fc(x, 1);
  const auto loss = layers::mean(layers::square(layers::elementwise_sub(guess, y)));

  MILLRACE_ASSIGN_OR_RETURN(const api::Connection connection, api::Connection::open());
  api::Fleet fleet(connection);
  MILLRACE_RETURN_IF_ERROR(by_mpi ? fleet.init_from_mpi() : fleet.init_from_environment());
  Strategy strategy = mode == "sync"         ? Strategy::sync()
                      : mode == "async"      ? Strategy::async()
                      : mode == "half_async" ? Strategy::half_async()
                                             : Strategy::geo(/*update_frequency=*/5);
  if (mode == "async")  // steps this short would be merged
    strategy.communicator = {{"communicator_max_merge_var_num", "1"},
                             {"communicator_send_queue_size", "1"},
                             {"communicator_independent_recv_thread", "0"}};
  MILLRACE_RETURN_IF_ERROR(fleet.distributed_optimizer({.learning_rate = 0.1}, strategy));
  MILLRACE_RETURN_IF_ERROR(fleet.minimize(net.main(), net.startup(), loss.name()));
  MILLRACE_ASSIGN_OR_RETURN(const api::FleetRole role, fleet.role());
  if (role.is_server) {
    MILLRACE_RETURN_IF_ERROR(fleet.init_server());
    return fleet.run_server();
  }
  MILLRACE_RETURN_IF_ERROR(fleet.init_worker());
  float last = 0;
  for (int step = 0; step < 400; ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const Arrays got, fleet.step(batch(role.id, step), {loss.name()}));
    last = got.at(loss.name()).values<float>()[0];
  }
  std::cout << "worker " << role.id << ": loss " << last << "\n";
  if (last > 0.02F) return {millrace::StatusCode::kExecution, "the loss is above 0.02"};
  MILLRACE_RETURN_IF_ERROR(fleet.wait_for_all());
  MILLRACE_RETURN_IF_ERROR(fleet.save_inference_model(
      {.root = folder, .folder = mode, .replace = true}, {"x"}, {guess.name()}));
  return fleet.stop_worker();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const Status status = run(argv[1], argv[2], argc > 3 && std::string(argv[3]) == "mpi");
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
