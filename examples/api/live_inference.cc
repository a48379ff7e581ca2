// Inference with the variables of running servers: an asynchronous job trains, and a live model
// looks up rows on its servers. In the end it predicts what the saved model does in one process.
//   live_inference FOLDER

#include <cmath>
#include <iostream>
#include <thread>

#include <millrace/api/executor.h>
#include <millrace/api/job.h>
#include <millrace/api/live_model.h>
#include <millrace/api/persistables.h>
#include <millrace/api/program.h>
#include <millrace/api/server.h>
#include <millrace/api/trainer.h>
#include <millrace/api/training.h>
#include <millrace/framework/program_file.h>
#include <millrace/frontend/layers.h>

namespace api = millrace::api;
namespace layers = millrace::layers;
using millrace::Array, millrace::Arrays, millrace::Status, millrace::StatusCode;

static Arrays batch(int step) {
  std::vector<int64_t> ids;
  std::vector<float> y;
  for (int row = 0; row < 16; ++row) {
    ids.push_back((row * 7 + step) % 50);
    y.push_back(ids.back() % 2 == 0 ? 1.0F : -1.0F);
  }
  return {{"ids", Array::of<int64_t>({16, 1}, ids)}, {"y", Array::of<float>({16, 1}, y)}};
}
// Servers inside this process; those of a job that failed must not wait for its trainers.
struct Servers {
  ~Servers() {
    for (auto& server : all) server.stop();
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<api::ParameterServer> all;
  std::vector<std::thread> threads;
};
static Status run(const std::string& folder) {
  millrace::Network net(/*random_seed=*/1);
  const auto ids = net.data("ids", {-1, 1}, millrace::DType::kInt64);
  const auto rows = layers::embedding(ids, 50, 4, {.is_sparse = true});
  const auto guess = layers::fc(rows, 1);
  const auto error = layers::elementwise_sub(guess, net.data("y", {-1, 1}));
  const auto loss = layers::mean(layers::square(error));
  api::ProgramEditor main(net.main());  // rows stay on the servers
  MILLRACE_ASSIGN_OR_RETURN(const auto ops, main.ops(0));
  MILLRACE_RETURN_IF_ERROR(main.set_attr(ops[0], {"remote_prefetch", true}));
  MILLRACE_ASSIGN_OR_RETURN(
      const auto training,
      api::minimize(*main.program(), net.startup(), loss.name(), {.learning_rate = 0.3}));
  api::WriteJobOptions job{.arguments = {.pservers = "a:1,b:1", .trainers = "2"}};
  job.config.sync_mode = job.arguments.sync_mode = false;
  MILLRACE_RETURN_IF_ERROR(
      api::write_job(*training.main, *training.startup, folder + "/job", job).status());
  const std::string forward = folder + "/forward.pb";
  MILLRACE_RETURN_IF_ERROR(millrace::save_program(*main.program(), forward));

  const auto connection = api::Connection::in_process();
  Servers servers;
  for (int i = 0; i < 2; ++i) {
    MILLRACE_ASSIGN_OR_RETURN(
        auto server, api::ParameterServer::open(api::server_files(folder + "/job", i), connection));
    servers.all.push_back(std::move(server));
  }
  for (auto& server : servers.all)
    servers.threads.emplace_back([&server] {
      const Status status = server.serve();
      if (!status.ok()) std::cerr << status.to_string() << "\n";
    });
  // the model takes the place of a second trainer
  MILLRACE_ASSIGN_OR_RETURN(auto trainer,
                            api::Trainer::open(api::trainer_files(folder + "/job", 0), connection));
  MILLRACE_ASSIGN_OR_RETURN(auto live,
                            api::LiveModel::open(api::trainer_files(folder + "/job", 1), {"ids"},
                                                 {guess.name()}, connection, {.trainer = 1}));
  const Arrays asked{{"ids", batch(0).at("ids")}};
  MILLRACE_ASSIGN_OR_RETURN(const Arrays before, live.run(asked));
  for (int step = 0; step < 150; ++step)
    MILLRACE_RETURN_IF_ERROR(trainer.step(batch(step)).status());
  MILLRACE_RETURN_IF_ERROR(live.refresh());  // dense parameters; rows are always those of now
  MILLRACE_ASSIGN_OR_RETURN(const Arrays now, live.run(asked));
  MILLRACE_RETURN_IF_ERROR(live.close());
  const api::TrainerEnding saves{.model = folder + "/model",
                                 .model_program = forward,
                                 .model_feeds = {"ids"},
                                 .model_fetches = {guess.name()}};
  MILLRACE_RETURN_IF_ERROR(trainer.finish(saves).status());

  const api::Scope scope;
  MILLRACE_ASSIGN_OR_RETURN(const auto saved, api::load_inference_model(folder + "/model", scope));
  MILLRACE_ASSIGN_OR_RETURN(auto executor, api::Executor::create());
  MILLRACE_ASSIGN_OR_RETURN(const Arrays alone, executor.run(*saved.program, scope, asked));
  const auto old = before.begin()->second.values<float>();
  const auto found = now.begin()->second.values<float>();
  const auto wanted = alone.begin()->second.values<float>();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const float y = batch(0).at("y").values<float>()[i];
    std::cout << old[i] << " -> " << found[i] << ", in one process " << wanted[i] << "\n";
    if (std::abs(found[i] - wanted[i]) > 1e-5F) return {StatusCode::kExecution, "they differ"};
    if (found[i] * y < 0.5F) return {StatusCode::kExecution, "it did not learn"};
  }
  return {};
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const Status status = run(argv[1]);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
