// A job of the fleet API, with a server and a worker in this process: an embedding is a table of
// the server, and the worker saves a model that runs without servers.
//   fleet FOLDER

#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <millrace/api/fleet.h>
#include <millrace/framework/program_file.h>

namespace {

namespace api = millrace::api;
using millrace::Array;
using millrace::Arrays;
using millrace::Status;

constexpr const char* kMain = R"(# millrace program 1

block 0 {
  param emb: f32(50, 4)
  param w: f32(4, 1)
  var ids: i64(-1, 1)
  var y: f32(-1, 1)
  var e: f32(-1, 4)
  var guess: f32(-1, 1)
  var d: f32(-1, 1)
  var q: f32(-1, 1)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, remote_prefetch: true, padding_idx: -1l}
  mul X=e Y=w -> Out=guess {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_sub X=guess Y=y -> Out=d {axis: -1}
  square X=d -> Out=q
  mean X=q -> Out=loss
}
)";
constexpr const char* kStartup = R"(# millrace program 1

block 0 {
  persist emb: f32(50, 4)
  persist w: f32(4, 1)
  uniform_random -> Out=emb {shape: [50l, 4l], seed: 1, min: -0.1, max: 0.1, dtype: 5}
  uniform_random -> Out=w {shape: [4l, 1l], seed: 2, min: -0.5, max: 0.5, dtype: 5}
}
)";

Arrays batch(int64_t step) {
  std::vector<int64_t> ids;
  std::vector<float> y;
  for (int row = 0; row < 8; ++row) {
    ids.push_back((row * 7 + step) % 50);
    y.push_back(ids.back() % 2 == 0 ? 1.0F : -1.0F);
  }
  Arrays feeds;
  feeds["ids"] = Array::of<int64_t>({8, 1}, ids);
  feeds["y"] = Array::of<float>({8, 1}, y);
  return feeds;
}

// A process of the job, up to its programs.
millrace::StatusOr<api::Fleet> prepared(const api::Connection& connection, bool is_server) {
  MILLRACE_ASSIGN_OR_RETURN(const auto main, millrace::parse_program_bytes(kMain, "main"));
  MILLRACE_ASSIGN_OR_RETURN(const auto startup, millrace::parse_program_bytes(kStartup, "startup"));
  api::Fleet fleet(connection);
  MILLRACE_RETURN_IF_ERROR(fleet.init({.is_server = is_server, .server_endpoints = {"server:1"}}));
  MILLRACE_RETURN_IF_ERROR(fleet.distributed_optimizer({.learning_rate = 0.5}, {.a_sync = false}));
  MILLRACE_RETURN_IF_ERROR(fleet.minimize(*main, *startup, "loss"));
  return fleet;
}

Status work(const api::Connection& connection, const std::string& folder) {
  MILLRACE_ASSIGN_OR_RETURN(api::Fleet worker, prepared(connection, /*is_server=*/false));
  MILLRACE_RETURN_IF_ERROR(worker.init_worker({.wait_for_servers = std::nullopt}));
  while (worker.next_step() < 60) {
    const int64_t step = worker.next_step();
    const auto results = worker.step(batch(step), {"loss"});
    if (results.ok()) {
      if (step % 20 == 0)
        std::cout << "step " << step << ": loss " << results->at("loss").values<float>()[0] << "\n";
    } else if (worker.must_go_back()) {
      // a server with snapshots was lost and started again: all workers repeat the steps after its
      // last snapshot
      MILLRACE_RETURN_IF_ERROR(worker.go_back());
    } else {
      return results.status();
    }
  }
  MILLRACE_RETURN_IF_ERROR(worker.wait_for_all());
  MILLRACE_RETURN_IF_ERROR(
      worker.save_inference_model({.root = folder, .folder = "model"}, {"ids"}, {"guess"}));
  return worker.stop_worker();
}

Status run(const std::string& folder) {
  const api::Connection connection = api::Connection::in_process();
  MILLRACE_ASSIGN_OR_RETURN(api::Fleet server, prepared(connection, /*is_server=*/true));
  MILLRACE_RETURN_IF_ERROR(server.init_server());
  Status served;
  std::thread serving([&] { served = server.run_server(); });
  const Status worked = work(connection, folder);
  if (!worked.ok()) server.stop_server();
  serving.join();
  MILLRACE_RETURN_IF_ERROR(worked);
  return served;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fleet FOLDER\n";
    return 2;
  }
  const Status status = run(argv[1]);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
