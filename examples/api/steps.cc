// Trains a saved program step by step with the variables in a scope, and changes a variable between
// two steps.
//   steps MAIN STARTUP

#include <iostream>
#include <vector>

#include <millrace/api/executor.h>
#include <millrace/framework/program_file.h>

namespace {

namespace api = millrace::api;
using millrace::Array;
using millrace::Arrays;

// 16 rows of 13 columns; y is the sum of each row.
Arrays batch(int step) {
  std::vector<float> x;
  std::vector<float> y;
  for (int row = 0; row < 16; ++row) {
    float sum = 0;
    for (int column = 0; column < 13; ++column) {
      x.push_back(static_cast<float>((row * 7 + column * 5 + step) % 11) * 0.1F - 0.5F);
      sum += x.back();
    }
    y.push_back(sum);
  }
  Arrays feeds;
  feeds["x"] = Array::of<float>({16, 13}, x);
  feeds["y"] = Array::of<float>({16, 1}, y);
  return feeds;
}

millrace::Status run(const std::string& main_file, const std::string& startup_file) {
  MILLRACE_ASSIGN_OR_RETURN(const auto main_program, millrace::load_program(main_file));
  MILLRACE_ASSIGN_OR_RETURN(const auto startup, millrace::load_program(startup_file));

  MILLRACE_ASSIGN_OR_RETURN(api::Executor executor, api::Executor::create({.threads = 2}));
  api::Scope scope;
  MILLRACE_RETURN_IF_ERROR(executor.run(*startup, scope).status());
  MILLRACE_ASSIGN_OR_RETURN(api::PreparedProgram training, executor.prepare(*main_program, scope));
  for (int step = 0; step < 20; ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const Arrays results, training.run(batch(step), {"mean_0.tmp_0"}));
    if (step % 5 == 0 || step == 19)
      std::cout << "step " << step << ": loss " << results.at("mean_0.tmp_0").values<float>()[0]
                << "\n";
    if (step != 9) continue;
    // the scope keeps the variables between runs; here all weights are set to 1
    const std::vector<float> ones(13, 1.0F);
    MILLRACE_RETURN_IF_ERROR(scope.set("fc_0.w_0", Array::of<float>({13, 1}, ones)));
  }
  for (const std::string& name : scope.names()) {
    MILLRACE_ASSIGN_OR_RETURN(const Array value, scope.get(name));
    std::cout << name << ":";
    for (const int64_t dim : value.dims) std::cout << " " << dim;
    std::cout << "\n";
  }
  return millrace::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: steps MAIN STARTUP\n";
    return 2;
  }
  const millrace::Status status = run(argv[1], argv[2]);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
