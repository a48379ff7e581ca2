// A process of a DownpourSGD job (pslib) that trains on files. Without rows the best loss is 1.
// Worker 0 checks that the model has the rows of all ids in the files, from both servers.
//   millrace launch --server_num 2 --trainer_num 2 -- downpour_files FOLDER

#include <cmath>
#include <fstream>
#include <iostream>

#include <millrace/api/dataset.h>
#include <millrace/api/fleet.h>
#include <millrace/api/persistables.h>
#include <millrace/api/program.h>
#include <millrace/frontend/layers.h>

namespace api = millrace::api;
namespace layers = millrace::layers;
using millrace::Status, millrace::StatusCode;
constexpr int kIds = 60, kWidth = 5;

// MultiSlot text: an id, and 1 or -1 by whether it is even. Every third id is in no file.
static void write_file(const std::string& path) {
  std::ofstream out(path);
  for (int line = 0; line < 2000; ++line) {
    const int id = line * 7 % kIds / 3 * 3 + line % 2;
    out << "1 " << id << " 1 " << (id % 2 == 0 ? 1 : -1) << "\n";
  }
}
static Status run(const std::string& folder) {
  millrace::Network net(/*random_seed=*/1);
  const auto id = net.data("id", {-1, 1}, millrace::DType::kInt64);
  const auto row = layers::embedding(id, kIds, kWidth, {.is_sparse = true, .param = {"rows"}});
  const auto error = layers::elementwise_sub(layers::fc(row, 1), net.data("y", {-1, 1}));
  const std::string loss = layers::mean(layers::square(error)).name();
  api::ProgramEditor main(net.main());  // the embedding is the distributed lookup table
  MILLRACE_ASSIGN_OR_RETURN(const auto ops, main.ops(0));
  MILLRACE_RETURN_IF_ERROR(main.set_attr(ops[0], {"is_distributed", true}));
  const api::DownpourStrategy strategy{
      .sparse_configs = {{"sparse_embedx_dim", kWidth - int64_t{1}},  // and one weight
                         {"sparse_learning_rate", 0.3}},
      .dense_configs = {{"dense_optimizer", std::string("naive")}, {"dense_naive_lr", 0.02}}};
  MILLRACE_ASSIGN_OR_RETURN(const auto connection, api::Connection::open());
  api::Fleet fleet(connection);
  MILLRACE_RETURN_IF_ERROR(fleet.init_from_environment());
  MILLRACE_RETURN_IF_ERROR(fleet.distributed_optimizer(strategy));
  MILLRACE_RETURN_IF_ERROR(fleet.minimize(*main.program(), net.startup(), loss));
  MILLRACE_ASSIGN_OR_RETURN(const api::FleetRole role, fleet.role());
  if (role.is_server) {
    MILLRACE_RETURN_IF_ERROR(fleet.init_server({}, {}, {}, {.files_root = folder}));
    return fleet.run_server();
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto files, fleet.split_files({folder + "/0", folder + "/1"}));
  for (const std::string& file : files) write_file(file);
  const api::DatasetOptions how{.files = files, .use_vars = {"id", "y"}, .batch_size = 20};
  MILLRACE_ASSIGN_OR_RETURN(auto data, api::Dataset::create(*main.program(), how));
  MILLRACE_RETURN_IF_ERROR(fleet.init_worker());
  MILLRACE_RETURN_IF_ERROR(fleet.train_from_dataset(data, {}).status());
  MILLRACE_ASSIGN_OR_RETURN(const auto epoch, fleet.train_from_dataset(data, {.fetches = {loss}}));
  MILLRACE_RETURN_IF_ERROR(fleet.wait_for_all());
  MILLRACE_RETURN_IF_ERROR(fleet.save_inference_model(
      {.root = folder, .folder = "downpour", .replace = true}, {"id"}, {row.name()}));
  MILLRACE_RETURN_IF_ERROR(fleet.stop_worker());
  std::cout << "worker " << role.id << ": mean loss " << epoch.means.at(loss) << "\n";
  if (epoch.means.at(loss) > 0.1) return {StatusCode::kExecution, "it did not learn"};
  if (role.id != 0) return {};
  const api::Scope scope;
  MILLRACE_RETURN_IF_ERROR(api::load_inference_model(folder + "/downpour", scope).status());
  MILLRACE_ASSIGN_OR_RETURN(const auto rows, scope.get("rows"));
  for (size_t i = 0; i < kIds; ++i) {
    if ((std::abs(rows.values<float>()[i * kWidth]) > 0.01F) != (i % 3 != 2))
      return {StatusCode::kExecution, "row " + std::to_string(i)};
  }
  return {};
}

int main(int argc, char** argv) {
  const Status status = argc < 2 ? Status(StatusCode::kUsage, "FOLDER") : run(argv[1]);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
