// A job with two servers and two trainers inside this process; then its variables for three
// servers.
//   jobs FOLDER
// FOLDER must not exist. Other processes could take part as well: with Connection::open() in place
// of Connection::in_process(), each role may be in a process of its own, also one of the tools.

#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <millrace/api/checkpoints.h>
#include <millrace/api/job.h>
#include <millrace/api/server.h>
#include <millrace/api/trainer.h>
#include <millrace/frontend/layers.h>

namespace {

namespace api = millrace::api;
namespace layers = millrace::layers;
using millrace::Array;
using millrace::Arrays;
using millrace::Status;

constexpr int kServers = 2;
constexpr int kTrainers = 2;
constexpr int kSteps = 20;

// Trainers have different rows.
Arrays batch(int trainer, int step) {
  std::vector<float> x;
  std::vector<float> y;
  for (int row = 0; row < 16; ++row) {
    const float a = static_cast<float>((row * 7 + step + trainer * 3) % 13) / 13;
    const float b = static_cast<float>((row * 3 + step) % 5) / 5;
    x.insert(x.end(), {a, b});
    y.push_back(2 * a - b);
  }
  Arrays feeds;
  feeds["x"] = Array::of<float>({16, 2}, x);
  feeds["y"] = Array::of<float>({16, 1}, y);
  return feeds;
}

// Writes the folder of a job for the servers. \returns the name of the loss
millrace::StatusOr<std::string> write(const std::string& folder, const std::string& servers) {
  millrace::Network net(/*random_seed=*/1);
  const auto x = net.data("x", {-1, 2});
  const auto y = net.data("y", {-1, 1});
  const auto guess = layers::fc(layers::fc(x, 8, {.act = "tanh"}), 1);
  const auto loss = layers::mean(layers::square(layers::elementwise_sub(guess, y)));
  MILLRACE_RETURN_IF_ERROR(net.minimize(loss, {.learning_rate = 0.1}).status());
  api::WriteJobOptions options;
  options.arguments.pservers = servers;
  options.arguments.trainers = std::to_string(kTrainers);
  MILLRACE_RETURN_IF_ERROR(api::write_job(net.main(), net.startup(), folder, options).status());
  return loss.name();
}

Status train(const std::string& folder, int number, const api::Connection& connection,
             const std::string& loss) {
  MILLRACE_ASSIGN_OR_RETURN(
      api::Trainer trainer,
      api::Trainer::open(api::trainer_files(folder, number), connection, {.trainer = number}));
  while (trainer.next_step() < kSteps) {
    const auto step = static_cast<int>(trainer.next_step());
    MILLRACE_ASSIGN_OR_RETURN(const Arrays results, trainer.step(batch(number, step), {loss}));
    if (number == 0 && step % 5 == 0)
      std::cout << "step " << step << ": loss " << results.at(loss).values<float>()[0] << "\n";
  }
  return trainer.finish().status();
}

Status run_job(const std::string& folder, const std::string& snapshots, const std::string& loss) {
  api::Connection connection = api::Connection::in_process();
  std::vector<api::ParameterServer> servers;
  for (int i = 0; i < kServers; ++i) {
    api::ServerOptions options;
    options.snapshot_root = snapshots;
    options.snapshot_every = kSteps;
    MILLRACE_ASSIGN_OR_RETURN(
        api::ParameterServer server,
        api::ParameterServer::open(api::server_files(folder, i), connection, options));
    servers.push_back(std::move(server));
  }
  std::vector<Status> results(kServers + kTrainers);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kServers; ++i)
    threads.emplace_back([&, i] { results[i] = servers[i].serve(); });
  for (int t = 0; t < kTrainers; ++t) {
    threads.emplace_back([&, t] {
      Status& result = results[static_cast<size_t>(kServers + t)];
      result = train(folder, t, connection, loss);
      if (result.ok()) return;
      for (api::ParameterServer& server : servers) server.stop();  // the others need not wait
      connection.close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) MILLRACE_RETURN_IF_ERROR(result);
  return millrace::Ok();
}

Status run(const std::string& folder) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string loss, write(folder + "/two", "a:1,b:1"));
  MILLRACE_RETURN_IF_ERROR(run_job(folder + "/two", folder + "/snapshots", loss));
  MILLRACE_RETURN_IF_ERROR(write(folder + "/three", "c:1,d:1,e:1").status());
  MILLRACE_ASSIGN_OR_RETURN(
      const api::ServerCheckpoint checkpoint,
      api::ServerCheckpoint::open(folder + "/snapshots", folder + "/two/slices.json"));
  std::cout << checkpoint.names().size() << " variables of " << checkpoint.servers()
            << " servers after step " << checkpoint.step() << "\n";
  return checkpoint.reshard(folder + "/three/slices.json", folder + "/resharded");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: jobs FOLDER\n";
    return 2;
  }
  const Status status = run(argv[1]);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
