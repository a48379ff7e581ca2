// A process of a hybrid job: servers have the embedding, workers average dense gradients by
// all-reduce. Each worker compares its last loss with that of one process.
//   millrace launch --server_num 2 --trainer_num 2 -- hybrid_fleet FOLDER
//   mpirun -n 4 hybrid_fleet FOLDER mpi

#include <cmath>
#include <iostream>

#include <millrace/api/fleet.h>
#include <millrace/api/program.h>
#include <millrace/executor/session.h>
#include <millrace/frontend/layers.h>

namespace api = millrace::api;
namespace layers = millrace::layers;
using millrace::Array, millrace::Arrays, millrace::Status, millrace::StatusCode;
constexpr int kSteps = 20;  // of each worker

// The rows of some workers, 8 for each.
static Arrays batch(int step, int first, int workers) {
  std::vector<int64_t> ids;
  std::vector<float> y;
  for (int row = first * 8; row < (first + workers) * 8; ++row) {
    ids.push_back((row * 7 + step) % 50);
    y.push_back(ids.back() % 2 == 0 ? 1.0F : -1.0F);
  }
  return {{"ids", Array::of<int64_t>({workers * 8, 1}, ids)},
          {"y", Array::of<float>({workers * 8, 1}, y)}};
}
static Status run(const std::string& folder, bool by_mpi) {
  millrace::Network net(/*random_seed=*/1);
  const layers::EmbeddingOptions sparse{.is_sparse = true,
                                        .param = {.initializer = millrace::init::Constant{0.1F}}};
  const auto ids = net.data("ids", {-1, 1}, millrace::DType::kInt64);
  const auto rows = layers::embedding(ids, 50, 4, sparse);
  const auto error = layers::elementwise_sub(layers::fc(rows, 1), net.data("y", {-1, 1}));
  const auto loss = layers::mean(layers::square(error));
  api::ProgramEditor main(net.main());  // the rows are to be looked up on servers
  MILLRACE_ASSIGN_OR_RETURN(const auto ops, main.ops(0));
  MILLRACE_RETURN_IF_ERROR(main.set_attr(ops[0], {"remote_prefetch", true}));
  MILLRACE_ASSIGN_OR_RETURN(const auto connection, api::Connection::open());
  api::Fleet fleet(connection);
  MILLRACE_RETURN_IF_ERROR(by_mpi ? fleet.init_from_mpi() : fleet.init_from_environment());
  const api::FleetStrategy hybrid{.a_sync = false, .dense_gradients = "all_reduce"};
  MILLRACE_RETURN_IF_ERROR(fleet.distributed_optimizer({.learning_rate = 0.1}, hybrid));
  MILLRACE_RETURN_IF_ERROR(fleet.minimize(*main.program(), net.startup(), loss.name()));
  MILLRACE_ASSIGN_OR_RETURN(const api::FleetRole role, fleet.role());
  if (role.is_server) {
    MILLRACE_RETURN_IF_ERROR(fleet.init_server({}, {}, {}, {.files_root = folder}));
    return fleet.run_server();
  }
  MILLRACE_RETURN_IF_ERROR(fleet.init_worker());
  float last = 0;
  for (int step = 0; step < kSteps; ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const Arrays got, fleet.step(batch(step, role.id, 1), {loss.name()}));
    last = got.at(loss.name()).values<float>()[0];
  }
  MILLRACE_RETURN_IF_ERROR(fleet.wait_for_all());
  MILLRACE_RETURN_IF_ERROR(
      fleet.save_persistables({.root = folder, .folder = "job", .replace = true}));
  MILLRACE_RETURN_IF_ERROR(fleet.stop_worker());
  // one process, with the batches of all workers
  MILLRACE_RETURN_IF_ERROR(net.minimize(loss, {.learning_rate = 0.1}).status());
  MILLRACE_ASSIGN_OR_RETURN(auto alone, millrace::Session::open(net.main(), &net.startup()));
  for (int step = 0; step + 1 < kSteps; ++step)
    MILLRACE_RETURN_IF_ERROR(alone.run(batch(step, 0, role.worker_num), {loss.name()}).status());
  MILLRACE_ASSIGN_OR_RETURN(const auto got,
                            alone.run(batch(kSteps - 1, role.id, 1), {loss.name()}));
  const float one = got.at(loss.name()).values<float>()[0];
  std::cout << "worker " << role.id << ": loss " << last << ", in one process " << one << "\n";
  return std::abs(last - one) < 1e-5F ? Status() : Status(StatusCode::kExecution, "they differ");
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const Status status = run(argv[1], /*by_mpi=*/argc > 2);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
