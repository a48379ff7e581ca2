// Turns a saved forward program into a training program, trains it, saves its variables to a folder
// and to memory, and serves the result.
//   files FOLDER

#include <iostream>
#include <string>
#include <vector>

#include <millrace/api/executor.h>
#include <millrace/api/persistables.h>
#include <millrace/api/training.h>
#include <millrace/framework/program_file.h>
#include <millrace/frontend/layers.h>

namespace {

namespace api = millrace::api;
namespace layers = millrace::layers;
using millrace::Array;
using millrace::Arrays;
using millrace::Status;

Arrays batch() {
  const std::vector<float> x = {0, 0, 0, 1, 1, 0, 1, 1};
  const std::vector<float> y = {0, 1, 1, 0};
  Arrays feeds;
  feeds["x"] = Array::of<float>({4, 2}, x);
  feeds["y"] = Array::of<float>({4, 1}, y);
  return feeds;
}

Status run(const std::string& folder) {
  millrace::Network net(/*random_seed=*/3);
  const auto x = net.data("x", {-1, 2});
  const auto y = net.data("y", {-1, 1});
  const auto guess = layers::fc(layers::fc(x, 8, {.act = "tanh"}), 1);
  const auto loss = layers::mean(layers::square(layers::elementwise_sub(guess, y)));
  MILLRACE_RETURN_IF_ERROR(net.status());

  MILLRACE_ASSIGN_OR_RETURN(const api::MinimizeResult training,
                            api::minimize(net.main(), net.startup(), loss.name(),
                                          {.method = millrace::Adam{}, .learning_rate = 0.05}));
  for (const Status& warning : training.warnings) std::cout << warning.to_string() << "\n";
  MILLRACE_ASSIGN_OR_RETURN(api::Executor executor, api::Executor::create());
  const api::Scope scope;
  MILLRACE_RETURN_IF_ERROR(executor.run(*training.startup, scope).status());
  MILLRACE_ASSIGN_OR_RETURN(api::PreparedProgram program, executor.prepare(*training.main, scope));
  for (int step = 0; step < 200; ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const Arrays results, program.run(batch(), {loss.name()}));
    if (step % 50 == 0)
      std::cout << "step " << step << ": loss " << results.at(loss.name()).values<float>()[0]
                << "\n";
  }

  MILLRACE_ASSIGN_OR_RETURN(const int64_t saved,
                            api::save_persistables(*training.main, scope, folder + "/params"));
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes,
                            api::persistables_to_memory(*training.main, scope));
  std::cout << saved << " variables in files, " << bytes.size() << " bytes in memory\n";
  const api::Scope copy;
  MILLRACE_RETURN_IF_ERROR(api::persistables_from_memory(*training.main, copy, bytes));
  MILLRACE_RETURN_IF_ERROR(
      api::save_inference_model(*training.main, copy, folder + "/model", {"x"}, {guess.name()}));

  const api::Scope served;
  MILLRACE_ASSIGN_OR_RETURN(const api::InferenceModel model,
                            api::load_inference_model(folder + "/model", served));
  Arrays feeds = batch();
  feeds.erase("y");
  MILLRACE_ASSIGN_OR_RETURN(const Arrays results, executor.run(*model.program, served, feeds));
  for (const float value : results.at(model.fetches.front()).values<float>())
    std::cout << value << "\n";
  return millrace::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: files FOLDER\n";
    return 2;
  }
  const Status status = run(argv[1]);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
